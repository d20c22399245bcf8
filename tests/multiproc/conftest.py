import launch
import pytest


@pytest.fixture(scope="session", autouse=True)
def subreaper():
    launch.become_subreaper()


@pytest.fixture(autouse=True)
def nothing_left(subreaper):
    yield
    launch.wait_until_nothing_is_left()
