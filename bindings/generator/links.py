"""Connects the entries of the interface: an alias and its enumeration, a handle and its destroy function, and so on."""

import re

FAILURE = re.compile(r"\b(?:or a failure|the failures? of|operation's failure)\b")
CODES = re.compile(r"\bDSC_(?:OK|DONE|IN_PROGRESS|TRUNCATED|ERR_[A-Z_]+)\b")


def connect(api):
    """Adds the links to all entries. Returns the entries that lack one."""
    enums(api)
    structs(api)
    problems = list(handles(api))
    by_name = {entry["name"]: entry for entry in api["functions"]}
    for entry in api["functions"]:
        if entry["returns"] == "dsc_result_t":
            entry["codes"] = sorted(codes(entry, by_name))
            entry["fails_as_operation"] = operation_fails(entry, by_name)
    return problems


def enums(api):
    """An enumeration names the values of the integer type that functions take."""
    aliases = {entry["name"]: entry for entry in api["aliases"]}
    for enum in api["enums"]:
        alias = enum["name"] + "_t"
        if alias in aliases:
            enum["alias"], aliases[alias]["enum"] = alias, enum["name"]


def structs(api):
    """A struct has the function that fills in its defaults, and the functions that take it."""
    functions = {entry["name"] for entry in api["functions"]}
    for struct in api["structs"]:
        init = struct["name"].removesuffix("_t") + "_init"
        if init in functions:
            struct["init"] = init
        struct["used_by"] = [f["name"] for f in api["functions"] if f["name"] != init and struct["name"] in element_types(f)]


def element_types(function):
    return [re.sub(r"\bconst\b|[* ]", "", argument["type"]) for argument in function["arguments"]]


def handles(api):
    """A handle has the functions that make it and the one that releases it. Yields handles without one."""
    functions = {entry["name"] for entry in api["functions"]}
    for handle in api["handles"]:
        makers = [f["name"] for f in api["functions"] if makes(f, handle["name"])]
        destroy = handle["name"].removesuffix("_t") + "_destroy"
        handle["makers"] = makers
        if destroy in functions:
            handle["destroy"] = destroy
        else:
            yield f"  {handle['name']}: expected a function {destroy}"


def makes(function, handle):
    return any(a["type"] == f"{handle}**" and a["role"] == "new_handle" for a in function["arguments"])


def codes(function, by_name, seen=()):
    """Returns the codes that a function's @return lists, also by reference to another function."""
    found = set(CODES.findall(function["result"]))
    for name in referred(function, by_name, seen):
        found |= codes(by_name[name], by_name, (*seen, function["name"]))
    return found


def referred(function, by_name, seen):
    names = re.findall(r"\b(?:as|those of) (dsc_\w+)\(\)", function["result"])
    return [name for name in names if name in by_name and name not in seen and name != function["name"]]


def operation_fails(function, by_name, seen=()):
    """Whether a function also returns the failures of an operation, which dsc/error.h and dsc/comm.h describe."""
    if FAILURE.search(function["result"]):
        return True
    return any(operation_fails(by_name[name], by_name, (*seen, function["name"])) for name in referred(function, by_name, seen))
