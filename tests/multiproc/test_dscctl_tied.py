"""dscctl plan with layers that share weights: one copy on a stage, and a sum of gradients between stages."""

import json

import launch
import pytest
from test_dscctl_plan import answer_of, plan, written


def tied(layers, *indices):
    return [{**layer, "tied": "words" if i in indices else ""} for i, layer in enumerate(layers)]


def test_tied_layers_by_hand(tmp_path):
    """A ring of two ranks moves the 10 bytes of a weight once, at 1 byte per us.

    A stage with both layers has one copy.
    """
    plain = [{"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1, "weight_bytes": 10, "activation_bytes": 3, "output_bytes": 0}] * 4
    asked = ("--devices", "2", "--batch", "4", "--micro-batches", "4", "--kind", "1f1b", "--bandwidth", "1MB/s", "--stages")
    apart = [answer_of(written(tmp_path, layers), *asked, "2")["rows"][0] for layers in (plain, tied(plain, 0, 3))]
    assert [row["tied_us"] for row in apart] == [0, 10] and apart[1]["step_us"] == apart[0]["step_us"] + 10
    assert apart[0]["peak_bytes"] == apart[1]["peak_bytes"] and apart[1]["network_us"] == 10
    words = plan(written(tmp_path, tied(plain, 0, 3)), *asked, "2").stdout
    assert "stages that share weights add up their gradients by such an all-reduce at the end" in words
    assert "and messages and all-reduces add 10 us, of which the sums of tied gradients take 10 us." in words
    assert "The drawing does not show the sums of tied gradients, which take 10 us at the end of the step." in words
    asked = (*asked[:4], "--micro-batches", "2", *asked[6:])
    alone = [answer_of(written(tmp_path, layers), *asked, "1")["rows"][0] for layers in (plain, tied(plain, 0, 3))]
    assert alone[1]["peak_bytes"] == alone[0]["peak_bytes"] - 4 * 10 and alone[1]["tied_us"] == 0
    assert alone[1]["network_us"] == pytest.approx(alone[0]["network_us"] - 10)  # reduced over the replicas only once


def test_null_is_no_name(tmp_path):
    """null, as JSON libraries write None, means that the layer shares nothing."""
    plain = {"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1, "weight_bytes": 10, "activation_bytes": 3, "output_bytes": 0}
    asked = ("--devices", "2", "--batch", "4", "--kind", "1f1b", "--bandwidth", "1MB/s")
    file = tmp_path / "layers.json"
    rows = []
    for layers in ([plain] * 4, [{**plain, "tied": None}] * 4):
        file.write_text(json.dumps(layers))
        rows.append(answer_of(file, *asked)["rows"])
    assert rows[0] == rows[1] and all(row["tied_us"] == 0 for row in rows[1])


def test_parts_of_a_stage_share_tied_weights(tmp_path):
    """With the V placement the first and the last part are on stage 0. With a loop they are on two stages."""
    layers = [{"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1, "weight_bytes": 10, "activation_bytes": 0, "output_bytes": 0}] * 4
    asked = ("--devices", "2", "--batch", "4", "--micro-batches", "4", "--stages", "2", "--chunks", "2", "--bandwidth", "1MB/s", "--kind")
    for kind, us in (("zb_v", 0), ("interleaved_1f1b", 10)):
        for pair in ((0, 3), (1, 2)):
            row = answer_of(written(tmp_path, tied(layers, *pair)), *asked, kind)["rows"][0]
            assert row["tied_us"] == us, (kind, pair)
            assert row["peak_bytes"] == 80, (kind, pair)  # the other stage has two weights that it does not share
    all_tied = answer_of(written(tmp_path, tied(layers, 0, 1, 2, 3)), *asked, "zb_v")["rows"][0]
    assert (all_tied["tied_us"], all_tied["peak_bytes"]) == (10, 40)
    assert answer_of(written(tmp_path, tied(layers, 0, 2)), *asked, "interleaved_1f1b")["rows"][0]["tied_us"] == 0


def test_an_order_that_is_looked_for_is_priced_with_ties(tmp_path):
    """The placement of the parts decides which stages have the weights. All rows keep the parts of their step."""
    layers = [{"forward_us": 2, "backward_input_us": 2, "backward_weight_us": 2, "weight_bytes": 10, "activation_bytes": 1, "output_bytes": 1}] * 5
    asked = ("--devices", "2", "--batch", "4", "--stages", "2", "--bandwidth", "1MB/s", "--kind")
    (row, *_), chunked = (answer_of(written(tmp_path, tied(layers, 0, 4)), *asked, *kind)["rows"] for kind in (["auto", "--chunks", "1"], ["auto,zb_v", "--chunks", "2"]))
    assert row["schedule"] == "auto" and row["tied_us"] == 10 and row["step_us"] >= row["bound_us"] + 10
    for one in (row, *chunked):
        assert one["tied_us"] in (0, 10)
        assert one["busy_us"] + one["waiting_us"] + one["network_us"] == pytest.approx(one["step_us"])


if __name__ == "__main__":
    launch.main(__file__)
