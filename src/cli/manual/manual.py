"""Writes man pages and shell completions from the help texts of a built ltrain: manual.py LTRAIN VERSION OUTPUT ...

Each OUTPUT's name says what it gets: NAME.1 a man page, ltrain and _ltrain the completions for bash and zsh."""
import os
import re
import subprocess
import sys

PATHS = ("DIR", "PATH", "FILE", "RUN", "SCORES.json")
VALUE = re.compile(r"[A-Z][A-Z0-9]*(?:[.,:=|@a-zA-Z0-9-]*[A-Z0-9.])?$")
CHOICES = re.compile(r": ((?:[\w:.-]+, )+[\w:.-]+)(?: \(|$)")


class Option:
    """An option of a command: its name, its value's name ("" for a switch), and its text."""

    def __init__(self, name, value, text):
        self.name, self.value, self.text = name, value, text

    def choices(self):
        found = CHOICES.search(self.text)
        return found.group(1).split(", ") if found else []

    def is_path(self):
        return any(self.value.startswith(p) for p in PATHS)


class Command:
    """A command's help: what stands before the options, groups of options, and what stands behind them."""

    def __init__(self, name, text, summary):
        self.name, self.summary, self.before, self.groups, self.after = name, summary, [], [("Options", [])], []
        option = None
        for line in text.splitlines():
            match = re.match(r"  +(--[a-z0-9-]+)(.*)", line)
            if match and not line.startswith("      "):
                words = match.group(2).strip().split(" ", 1)
                has_value = bool(words[0]) and VALUE.match(words[0])
                text = " ".join(words[1:]) if has_value else match.group(2)
                option = Option(match.group(1), words[0] if has_value else "", text.strip())
                self.groups[-1][1].append(option)
            elif option and line.startswith("      "):
                option.text = (option.text + " " + line.strip()).strip()
            elif re.match(r"[A-Z][^.]*:$", line) and not line.startswith("usage"):
                self.groups.append((line[:-1], []))
                option = None
            elif line.strip() or option is None:
                option = None if line.strip() else option
                (self.after if len(self.all()) else self.before).append(line)

    def all(self):
        return [o for _, options in self.groups for o in options]


def read(ltrain):
    """Returns the commands by name; "" is training."""

    def help_of(*words):
        return subprocess.run([ltrain, *words, "--help"], check=True, capture_output=True, text=True).stdout

    own = help_of()
    summaries = re.findall(r"^ +ltrain ([a-z]+) +\.\.\. *((?:.+)(?:\n {20,}.*)*)", own, re.M)
    commands = {"": Command("", own, "train language models on very long sequences")}
    for name, summary in summaries:
        text = help_of(name)
        summary = re.sub(r"same options: ", "", re.sub(r" *\(ltrain .*", "", " ".join(summary.split())))
        commands[name] = Command(name, text, summary)
        if text == own: # plan, check and data take the options of training where they have no text of their own
            commands[name].before = ["usage: ltrain %s --model DIR --data PATH --seq-len N [options]" % name]
    return commands


def roff(text):
    """Escapes a text for roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def man(command, commands, version):
    """Returns a man page."""
    name = "ltrain" + ("-" + command.name if command.name else "")
    lines = ['.TH %s 1 "" "ltrain %s" "ltrain"' % (name.upper(), version), ".SH NAME"]
    lines += ["%s \\- %s" % (roff(name), roff(command.summary)), ".SH SYNOPSIS", ".nf"]
    texts = [line for line in command.before]
    end = texts.index("") if "" in texts else len(texts)
    lines += [roff(line.replace("usage: ", "", 1) if line.startswith("usage: ") else line.removeprefix("       ")) for line in texts[:end]]
    lines += [".fi", ".SH DESCRIPTION"] if any(texts[end:]) else [".fi"]
    for line in texts[end + 1 :]:
        lines += [".PP"] if not line.strip() else [".RS", ".nf", roff(line.strip()), ".fi", ".RE"] if line.startswith("  ") else [roff(line)]
    for title, options in command.groups:
        if options:
            lines.append(".SH %s" % title.upper())
        for o in options:
            lines += [".TP", "\\fB%s\\fR%s" % (roff(o.name), " \\fI%s\\fR" % roff(o.value) if o.value else ""), roff(o.text)]
    after = [line for line in command.after if line.strip()]
    if after:
        lines += [".SH NOTES", roff(" ".join(after))]
    others = [n for n in commands if n != command.name]
    lines += [".SH SEE ALSO", ", ".join("\\fBltrain%s\\fR(1)" % ("\\-" + n if n else "") for n in others)]
    return "\n".join(lines) + "\n"


def bash(commands):
    """Returns the completion for bash."""
    lines = ["# Completion of ltrain for bash, made from its help texts.", "_ltrain() {", "    local word=$2 before=$3 command='' options='' choices='' w",
             '    for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do', '        case $w in %s) command=$w; break ;; -*) break ;; esac' % "|".join(n for n in commands if n), "    done",
             "    case $command in"]
    for name, c in commands.items():
        if name:
            lines.append("    %s) options='%s' ;;" % (name, " ".join(o.name for o in c.all())))
    lines += ["    *) options='%s' ;;" % " ".join(o.name for o in commands[""].all()), "    esac", "    COMPREPLY=()", "    case $before in"]
    seen = {}
    for c in commands.values():
        for o in c.all():
            seen.setdefault(o.name, o)
    for o in seen.values():
        if o.choices():
            lines.append("    %s) choices='%s' ;;" % (o.name, " ".join(o.choices())))
    paths = "|".join(o.name for o in seen.values() if o.is_path())
    lines += ["    esac", "    case $before in",
              '    %s) mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word"; compgen -f -- "$word"); compopt -o filenames 2>/dev/null; return ;;' % paths,
              "    esac", '    if [ -n "$choices" ]; then mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word"); return; fi',
              '    case $word in', '    -*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word") ;;',
              '    *)', '        [ "$COMP_CWORD" != 1 ] || mapfile -t COMPREPLY < <(compgen -W "%s" -- "$word")' % " ".join(n for n in commands if n),
              '        case $command in report | replay | compare) mapfile -t COMPREPLY < <(compgen -f -- "$word"); compopt -o filenames 2>/dev/null ;; esac ;;', "    esac", "}", "complete -F _ltrain ltrain"]
    return "\n".join(lines) + "\n"


def zsh(commands):
    """Returns the completion for zsh."""

    def quoted(text):
        return text.replace("\\", "\\\\").replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")

    def argument(o):
        action = "_files" if o.is_path() else "(%s)" % " ".join(o.choices()) if o.choices() else ""
        return "    '*%s[%s]%s'" % (o.name, quoted(o.text[:60]), ":%s:%s" % (quoted(o.value), action) if o.value else "")

    lines = ["#compdef ltrain", "# Completion of ltrain for zsh, made from its help texts.", "local -a commands", "commands=(%s)" % " ".join(n for n in commands if n),
             "if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then", "    _describe command commands", "    return", "fi", "case $words[2] in"]
    for name, c in commands.items():
        if name:
            lines += ["%s)" % name, "    _arguments \\"] + [argument(o) + " \\" for o in c.all()] + ["    '*:file:_files' ;;"]
    lines += ["*)", "    _arguments \\"] + [argument(o) + " \\" for o in commands[""].all()] + ["    '*:file:_files' ;;", "esac"]
    return "\n".join(lines) + "\n"


def main():
    ltrain, version, *outputs = sys.argv[1:]
    commands = read(ltrain)
    for path in outputs:
        name = os.path.basename(path)
        if name.endswith(".1"):
            key = name[:-2].removeprefix("ltrain").removeprefix("-")
            text = man(commands[key], commands, version)
        else:
            text = bash(commands) if name == "ltrain" else zsh(commands)
        with open(path, "w") as f:
            f.write(text)


main()
