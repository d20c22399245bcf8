"""Reads the public headers with libclang into plain dictionaries, which have the structure of api.json."""

import pathlib
import re
import shutil
import subprocess

from clang import cindex
from clang.cindex import CursorKind, StorageClass, TypeKind

from . import links, names, pointers
from .comment import Comment

LIBCLANG = "libclang-14.so.1"
LABELS = ("collective", "blocking", "ownership", "threads")
THREAD_RULE = re.compile(r"any\b|one (thread )?at a time per (communicator|reducer|schedule|tied layers|join|ring|sharded parameters)")
CALLBACK_THREAD_RULE = re.compile(r"the calling thread|any thread|the library's log thread")
PLACES = ("pointers", "64 bits", "32 bits", "texts")
UNSIZED = ("dsc_setting_t", "dsc_pipe_compute_t")  # these structs never change, so they need no struct_size
HANDLE_RULE = re.compile(r"any thread|one thread at a time")


def parse(root, header):
    """Returns the interface.

    Raises ValueError if the headers do not compile, a comment is incomplete, or the fields of a struct are in another
    order than dsc/types.h requires.
    """
    if not cindex.Config.loaded:
        cindex.Config.set_library_file(LIBCLANG)
    include = pathlib.Path(root) / "capi" / "include"
    unit = cindex.Index.create().parse(
        str(pathlib.Path(root) / header),
        args=["-xc", "-std=c99", f"-I{include}", *compiler_headers()],
        options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD,
    )
    errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise ValueError("the headers do not compile:\n" + "\n".join(errors))
    cursors = [c for c in unit.cursor.get_children() if is_public(c, include)]
    api = collect(cursors)
    api["headers"] = [head(include / "dsc" / name) for name in sorted({entry["header"].removeprefix("dsc/") for entry in api["functions"] + api["structs"] + api["enums"]})]
    resolve_threads(api, include)
    problems = incomplete(api) + misplaced(api) + names.misnamed(api) + pointers.describe(api) + links.connect(api)
    if problems:
        raise ValueError("the headers break the rules of dsc/types.h:\n" + "\n".join(problems))
    return api


def compiler_headers():
    """Returns the folder of stddef.h, for a libclang that was installed without its own copy."""
    compiler = shutil.which("cc")
    if not compiler:
        return []
    out = subprocess.run([compiler, "-print-file-name=include"], capture_output=True, text=True, check=True)
    return ["-idirafter", out.stdout.strip()]


def is_public(cursor, include):
    file = cursor.location.file
    return file is not None and include in pathlib.Path(file.name).parents


def collect(cursors):
    """Sorts the declarations by kind, each kind in the order of the headers."""
    api = {kind: [] for kind in ("headers", "constants", "enums", "aliases", "handles", "callbacks", "structs", "functions")}
    for cursor in cursors:
        if cursor.kind == CursorKind.MACRO_DEFINITION:
            api["constants"] += constant(cursor)
        elif cursor.kind == CursorKind.ENUM_DECL:
            api["enums"].append(enum(cursor))
        elif cursor.kind == CursorKind.TYPEDEF_DECL:
            add_typedef(api, cursor)
        elif cursor.kind == CursorKind.FUNCTION_DECL and cursor.storage_class != StorageClass.STATIC:
            api["functions"].append(function(cursor))
    return api


def add_typedef(api, cursor):
    """Adds a typedef: a handle, a struct, a callback or another name for an integer."""
    target = cursor.underlying_typedef_type
    doc = Comment(cursor.raw_comment)
    name = cursor.spelling
    if target.get_canonical().kind == TypeKind.RECORD:
        declaration = target.get_canonical().get_declaration()
        if declaration.is_definition() or declaration.get_definition():
            api["structs"].append(struct(name, declaration.get_definition()))
        else:
            api["handles"].append(handle(cursor, doc))
    elif target.kind == TypeKind.POINTER and target.get_pointee().kind == TypeKind.FUNCTIONPROTO:
        api["callbacks"].append(callback(cursor, target.get_pointee(), doc))
    else:
        alias = {"name": name, "type": spelling(target), "brief": doc.brief, "header": header_of(cursor)}
        api["aliases"].append(alias)


def handle(cursor, doc):
    """Returns a handle. The sentence "Thread-safety: RULE." at the end of its brief becomes a separate entry."""
    brief, _, rule = doc.brief.partition(" Thread-safety: ")
    header = header_of(cursor)
    return {"name": cursor.spelling, "brief": brief, "header": header, "thread_safety": rule.rstrip(".")}


def constant(cursor):
    """Returns an integer macro. Other macros (include guards, DSC_API) are not needed outside C."""
    tokens = [t.spelling for t in cursor.get_tokens()]
    if len(tokens) < 2 or not re.fullmatch(r"\d+", tokens[1]):
        return []
    return [{"name": tokens[0], "value": int(tokens[1]), "header": header_of(cursor)}]


def enum(cursor):
    values = [
        {"name": c.spelling, "value": c.enum_value, "brief": Comment(c.raw_comment).text}
        for c in cursor.get_children()
        if c.kind == CursorKind.ENUM_CONSTANT_DECL
    ]
    doc = Comment(cursor.raw_comment)
    return {"name": cursor.spelling, "brief": doc.brief, "text": "\n\n".join(doc.paragraphs), "header": header_of(cursor), "values": values}


def struct(name, cursor):
    fields = []
    for field in cursor.type.get_fields():
        fields.append(
            {
                "name": field.spelling,
                "type": spelling(field.type),
                "offset": cursor.type.get_offset(field.spelling) // 8,
                "size": field.type.get_size(),
                "brief": Comment(field.raw_comment).text,
            }
        )
    doc, size = Comment(cursor.raw_comment), cursor.type.get_size()
    return {"name": name, "brief": doc.brief, "text": "\n\n".join(doc.paragraphs), "header": header_of(cursor), "size": size, "fields": fields}


def callback(cursor, prototype, doc):
    names = [c.spelling for c in cursor.get_children() if c.kind == CursorKind.PARM_DECL]
    types = [spelling(type_) for type_ in prototype.argument_types()]
    return {
        "name": cursor.spelling,
        "brief": doc.brief,
        "text": "\n\n".join(doc.paragraphs),
        "header": header_of(cursor),
        "returns": spelling(prototype.get_result()),
        "arguments": documented(zip(names, types), doc),
        "result": doc.tags.get("return", ""),
        "threads": doc.label("Threads"),
        "may_call": doc.label("May call"),
    }


def documented(arguments, doc):
    """Returns the arguments, given as pairs of name and type, with what the comment says of each."""
    found = []
    for name, type_ in arguments:
        direction, brief = doc.parameters.get(name, (None, ""))
        found.append({"name": name, "type": type_, "direction": direction, "brief": brief})
    return found


def function(cursor):
    doc = Comment(cursor.raw_comment)
    arguments = documented([(each.spelling, spelling(each.type)) for each in cursor.get_arguments()], doc)
    found = {
        "name": cursor.spelling,
        "brief": doc.brief,
        "text": "\n\n".join(doc.paragraphs),
        "header": header_of(cursor),
        "returns": spelling(cursor.result_type),
        "arguments": arguments,
        "result": doc.tags.get("return", ""),
        "since": doc.tags.get("since", ""),
    }
    return found | {label: doc.label(label) for label in LABELS}


def header_of(cursor):
    return "dsc/" + pathlib.Path(cursor.location.file.name).name


def spelling(type_):
    """Returns the C text of a type as in the headers, such as "const void*" or "int32_t[64]"."""
    return re.sub(r"\s*(\*+|\[)", r"\1", type_.spelling).replace("*const", "* const")


def resolve_threads(api, include):
    """Replaces "as dsc_x()" and "see the head of this file" in a comment by the rule itself."""
    by_name = {entry["name"]: entry for entry in api["functions"]}
    for entry in api["functions"]:
        reference = re.match(r"as (dsc_\w+)\(\)", entry["threads"])
        if reference and reference[1] in by_name:
            entry["threads"] = by_name[reference[1]]["threads"]
        elif entry["threads"].startswith("see the head of this file"):
            entry["threads"] = head_rule(include / entry["header"])


def head_rule(header):
    """Returns the paragraph "**Threads.** ..." at the start of a header as one line; empty if there is none."""
    found = [text for text in comment_of(header).prose if text.startswith("**Threads.** ")]
    text = found[0].removeprefix("**Threads.** ").rstrip(".") if found else ""
    return text[:1].lower() + text[1:]


def comment_of(header):
    """Returns the comment at the start of a header."""
    return Comment(header.read_text().partition("*/")[0])


def head(header):
    doc = comment_of(header)
    return {"name": "dsc/" + header.name, "brief": doc.brief, "text": "\n\n".join(doc.paragraphs)}


def incomplete(api):
    """Returns a list of what a function's comment must contain, but does not."""
    problems = []
    for entry in api["functions"]:
        for key in ("brief", "result", "since", "collective", "blocking", "threads"):
            if not entry[key]:
                problems.append(f"  {entry['name']}: '{key}' is missing")
        if not THREAD_RULE.match(entry["threads"]):
            problems.append(f"  {entry['name']}: threads is '{entry['threads']}'; expected 'any' or 'one at a time per ...'")
    for entry in api["functions"] + api["callbacks"]:
        for argument in entry["arguments"]:
            if not argument["direction"] or not argument["brief"]:
                problems.append(f"  {entry['name']}: @param[in|out] {argument['name']} is missing")
    for entry in api["callbacks"]:
        if not CALLBACK_THREAD_RULE.match(entry["threads"]):
            problems.append(f"  {entry['name']}: threads is '{entry['threads']}'; expected 'the calling thread', 'any thread' or 'the library's log thread'")
        if not entry["may_call"]:
            problems.append(f"  {entry['name']}: 'May call' is missing: the functions of this library that it may call, or 'nothing'")
    for entry in api["handles"]:
        if not HANDLE_RULE.match(entry["thread_safety"]):
            problems.append(f"  {entry['name']}: the brief must end with 'Thread-safety: any thread' or '... one thread at a time'")
    for entry in api["structs"] + api["enums"] + api["handles"] + api["callbacks"]:
        if not entry["brief"]:
            problems.append(f"  {entry['name']}: a comment is missing")
    return problems


def misplaced(api):
    """Lists fields that violate the rules of dsc/types.h: no padding, and the order given in PLACES.

    Fields that a release after 0.1 adds are at the end, in any order. The first of them will need an exception here.
    """
    callbacks = {entry["name"] for entry in api["callbacks"]}
    return [problem for entry in api["structs"] for problem in misplaced_in(entry, callbacks)]


def misplaced_in(struct, callbacks):
    name, fields = struct["name"], struct["fields"]
    problems = []
    if name not in UNSIZED and fields[0]["name"] != "struct_size":
        problems.append(f"  {name}: the first field is {fields[0]['name']}, expected struct_size")
    rest = [field for field in fields if field["name"] != "struct_size"]
    for before, field in zip(rest, rest[1:]):
        if place(field, callbacks) < place(before, callbacks):
            problems.append(f"  {name}: {field['name']} comes after {before['name']}; expected the order: {', '.join(PLACES)}")
    ends = [field["offset"] + field["size"] for field in fields]
    for end, offset in zip(ends, [field["offset"] for field in fields[1:]] + [struct["size"]]):
        if end != offset:
            problems.append(f"  {name}: a hole of {offset - end} bytes before byte {offset}; fill it with 'reserved'")
    return problems


def place(field, callbacks):
    """Returns the index in PLACES for a field."""
    element, _, is_array = field["type"].partition("[")
    if element == "char" and is_array:
        return PLACES.index("texts")
    if element.endswith(("*", "* const")) or element in callbacks:
        return PLACES.index("pointers")
    bits = 8 * field["size"] // int(is_array.rstrip("]") or 1)
    return PLACES.index(f"{bits} bits")
