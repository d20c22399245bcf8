"""Reads documentation comments of the public headers: tags, parameters, labels, and marks of pointers."""

import re

DIRECTIONS = {"in": "in", "out": "out", "in,out": "inout"}
LABELS = ("Collective", "Blocking", "Ownership", "Threads", "May call")
# "[n + 1] entries" or "[out count of dtype] ...": who writes, how many entries, and of which element type.
MARK = re.compile(r"\[(?:(in|out|inout) )?((?:[^\[\]]|\[[^\]]*\])+?)(?: of (\w+))?\]\s*")


def split_mark(text):
    """Returns (the mark at the start of a text as a dict, the rest of the text). The mark is empty if there is none."""
    found = MARK.match(text)
    if not found:
        return {}, text
    mark = {"direction": found[1], "length": found[2], "element": found[3]}
    return {key: value for key, value in mark.items() if value}, text[found.end() :]


class Comment:
    """A parsed documentation comment: brief, parameters, tags, paragraphs, and the sentences with labels."""

    def __init__(self, raw):
        lines = [re.sub(r"^\s*(/\*\*<?|\*/|\*(?!/))\s?", "", line) for line in (raw or "").splitlines()]
        body = re.sub(r"\s*\*/\s*$", "", "\n".join(lines))
        blocks = re.split(r"(?m)^\s*(?=@)|\n\s*\n", body)
        self.tags, self.parameters, self.prose, self.paragraphs = {}, {}, [], []
        for block in blocks:
            self.add(" ".join(block.split()), block.strip())
        self.text = " ".join(self.prose)
        self.brief = self.tags.get("brief", "")

    def add(self, block, lines):
        """Adds a paragraph or a tag, as one line and as it stands."""
        parameter = re.match(r"@param(?:\[([a-z,]+)\])?\s+(\w+)\s*(.*)", block)
        tag = re.match(r"@(\w+)\s+(.*)", block)
        if parameter:
            direction, name, text = parameter.groups()
            self.parameters[name] = (DIRECTIONS.get(direction), text)
        elif tag:
            self.tags[tag[1]] = tag[2]
        elif block:
            self.prose.append(block)
            self.paragraphs.append(lines)

    def label(self, wanted):
        """Returns the text after a label such as "Collective:".

        "Blocking, threads: ..." counts for each of its words.
        """
        head = r"(?:^|(?<=[.;] ))((?:%s)(?:, [a-z]+)*): " % "|".join(LABELS)
        for block in self.prose:
            parts = re.split(head, block)
            for words, text in zip(parts[1::2], parts[2::2]):
                if wanted.lower() in words.lower().split(", "):
                    return text.strip().rstrip(".;")
        return ""
