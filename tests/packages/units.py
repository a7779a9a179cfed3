"""The settings of the systemd units, parsed like systemd parses them."""
import re
import shlex


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def settings(text):
    """Parses an environment file."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")


def defaults(unit):
    """Returns the Environment= settings of a unit."""
    return dict(word.split("=", 1) for line in re.findall(r"^Environment=(.*)$", unit, re.M)
                for word in shlex.split(line))


def words_of(unit, values):
    """Returns the words of ExecStart: ${NAME} becomes one word, $NAME as many as its value has."""
    words = []
    for word in re.search(r"^ExecStart=(.*)$", unit, re.M).group(1).split():
        name = re.fullmatch(r"\$\{?(\w+)\}?", word)
        if name is None:
            words.append(word)
        else:
            words += [values[name[1]]] if "{" in word else shlex.split(values[name[1]])
    return words
