"""``hbtvm completion``: print a script that completes commands, options and their values in a shell.

The script holds all words, so a press of TAB starts no process.
"""

from __future__ import annotations

import argparse
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hbtvm.cli.arguments import examples, paragraphs
from hbtvm.cli.parser import Parser

_DESCRIPTION = """
Print a script for the shell that completes commands, options and values with TAB. Load it when the shell
starts, by a line in ~/.bashrc, ~/.zshrc (after compinit) or ~/.config/fish/config.fish. The script is for
this release: print it anew after an upgrade, if you keep it in a file.

bash: eval "$(hbtvm completion bash)"

zsh: eval "$(hbtvm completion zsh)"

fish: hbtvm completion fish | source
"""


def add_parser(commands: Any, program: Parser) -> None:
    """Add the command to the subparsers of the program's parser."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm completion bash > ~/.local/share/bash-completion/completions/hbtvm", "for bash"),
            ("hbtvm completion fish > ~/.config/fish/completions/hbtvm.fish", "for fish"),
        ),
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_SCRIPTS), help="bash, zsh or fish")
    parser.set_defaults(run=partial(run, program))


def run(program: Parser, arguments: argparse.Namespace) -> int:
    """Run the command."""
    print("\n".join(_SCRIPTS[arguments.shell](list(_places(program, "")))))
    return 0


@dataclass(frozen=True)
class _Place:
    """A command, or an action of a command."""

    words: str  # the words that lead to it, each after a space
    commands: Mapping[str, str]  # commands or values that may follow, with their descriptions
    options: tuple[argparse.Action, ...]
    of: Parser

    def text(self, option: argparse.Action) -> str:
        """Describe an option in a few words."""
        text = self.of._get_formatter()._expand_help(option)
        return textwrap.shorten(text.split(" (default")[0].split(";")[0], 72, placeholder=" ...")


def _places(parser: Parser, words: str) -> Iterator[_Place]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    commands = {item.dest: item.help or "" for action in inner for item in action._choices_actions}
    options = tuple(action for action in parser._actions if action.option_strings)
    for action in parser._actions:
        if action.choices and not action.option_strings and action not in inner:
            commands |= dict.fromkeys(map(str, action.choices), "")
    yield _Place(words, commands, options, parser)
    for action in inner:
        for name, sub in action.choices.items():
            if name == "help":
                yield _Place(" help", commands, (), sub)
            else:
                yield from _places(sub, f"{words} {name}")


def _bash(places: list[_Place]) -> Iterator[str]:
    yield "# Completes hbtvm in bash."
    yield "_hbtvm() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local place="" words="" word'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f'        case "$place $word" in {_known(places)}) place+=" $word" ;; esac'
    yield "    done"
    yield '    case "$place $before" in'
    for place in places:
        for option in place.options:
            if option.nargs != 0:
                pattern = "|".join(f'"{place.words} {name}"' for name in option.option_strings)
                yield f'        {pattern}) words="{" ".join(map(str, option.choices or ()))}" ;;'
    yield '        *) case "$place:$current" in'
    for place in places:
        names = " ".join(name for option in place.options for name in option.option_strings)
        yield f'            "{place.words}:-"*) words="{names}" ;;'
        yield f'            "{place.words}:"*) words="{" ".join(place.commands)}" ;;'
    yield "        esac ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _hbtvm hbtvm  # file names where no word fits"


def _zsh(places: list[_Place]) -> Iterator[str]:
    yield "#compdef hbtvm"
    yield "_hbtvm() {"
    yield "    local place='' i at=1"
    yield "    for ((i = 2; i < CURRENT; i++)); do"
    yield f'        case "$place $words[i]" in ({_known(places)}) place+=" $words[i]"; at=$i ;; esac'
    yield "    done"
    yield '    words=("${(@)words[at,-1]}"); (( CURRENT -= at - 1 ))'
    yield '    case "$place" in'
    for place in places:
        specs = [_zsh_option(option, place.text(option)) for option in place.options]
        if place.commands:
            items = " ".join(shlex.quote(f"{name}:{text}") for name, text in place.commands.items())
            yield f"        ('{place.words}')"
            yield f"            local -a commands=({items})"
            yield "            [[ $words[CURRENT] == -* ]] || { _describe command commands; return }"
        else:
            yield f"        ('{place.words}')"
        yield f"            _arguments {' '.join([*specs, shlex.quote('*:file:_files')])} ;;"
    yield "    esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = _hbtvm ]; then _hbtvm "$@"; else compdef _hbtvm hbtvm; fi'


def _zsh_option(option: argparse.Action, text: str) -> str:
    """Return an option as an argument of ``_arguments``."""
    escaped = text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = ""
    if option.nargs != 0:
        values = f"({' '.join(map(str, option.choices))})" if option.choices else "_files"
        value = f":{option.metavar or option.dest}:{values}"
    names = option.option_strings
    if len(names) == 1:
        return shlex.quote(f"{names[0]}[{escaped}]{value}")
    apart = shlex.quote(f"({' '.join(names)})")
    return f"{apart}{{{','.join(names)}}}{shlex.quote(f'[{escaped}]{value}')}"


def _fish(places: list[_Place]) -> Iterator[str]:
    yield "# Completes hbtvm in fish."
    yield "function __hbtvm_at"
    yield "    set -l place ''"
    yield "    for word in (commandline -opc)[2..]"
    yield '        switch "$place $word"'
    yield f"            case {_known(places).replace('|', ' ')}"
    yield '                set place "$place $word"'
    yield "        end"
    yield "    end"
    yield '    test "$place" = "$argv[1]"'
    yield "end"
    for place in places:
        start = f"complete -c hbtvm -n '__hbtvm_at \"{place.words}\"'"
        for name, text in place.commands.items():
            yield f"{start} -f -a {name} -d {_fish_quoted(text)}"
        for option in place.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.option_strings
            )
            values = " -r" if option.nargs != 0 else ""
            if option.choices:
                values = f" -x -a '{' '.join(map(str, option.choices))}'"
            yield f"{start} {names}{values} -d {_fish_quoted(place.text(option))}"


def _known(places: list[_Place]) -> str:
    """Return the words that lead to commands, as alternatives of a shell's pattern."""
    return "|".join(f'"{place.words}"' for place in places if place.words)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS: Mapping[str, Callable[[list[_Place]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
