"""The parser of a command: short help, ``--help-all``, and one sentence for each mistake."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from hbtvm.cli.show import fold, print_line
from hbtvm.words.similar import did_you_mean

_WIDEST = 88  # most characters of a line of help


class Parser(argparse.ArgumentParser):
    """Parses a command's arguments; reports an error in one sentence, and where to read more.

    Options can't be abbreviated, so that a new option breaks no script.

    `all_description`, `all_epilog`: description and epilog of ``--help-all``, if they differ.
    """

    def __init__(self, *, all_description: str = "", all_epilog: str = "", **settings: Any) -> None:
        settings.setdefault("formatter_class", _Help)
        self._rare: list[argparse._ArgumentGroup] = []
        super().__init__(allow_abbrev=False, **settings)
        self._positionals.title = "arguments"
        self._all = {"description": all_description, "epilog": all_epilog}

    def add_rare_group(self, title: str, description: str | None = None) -> argparse._ArgumentGroup:
        """Add a group of options that only ``--help-all`` shows."""
        if not self._rare:
            self.add_argument("--help-all", action=_HelpAll, help="")
            actions = self._optionals._group_actions
            actions.insert(1, actions.pop())  # below --help
        group = self.add_argument_group(title, description)
        self._rare.append(group)
        titles = [str(rare.title) for rare in self._rare]
        self._option_string_actions["--help-all"].help = f"show this and further options: {_listed(titles)}"
        return group

    def format_help(self, everything: bool = False) -> str:
        """Return the help; `everything`: with the rare groups."""
        formatter = self._get_formatter()
        formatter.add_usage(fold(self._usage(formatter), formatter._width), [], [], prefix="")
        formatter.add_text((everything and self._all["description"]) or self.description)
        for group in self._action_groups:
            if everything or group not in self._rare:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(group._group_actions)
                formatter.end_section()
        formatter.add_text((everything and self._all["epilog"]) or self.epilog)
        return formatter.format_help()

    def _usage(self, formatter: argparse.HelpFormatter) -> str:
        """Return the usage: what must be there, and ``[OPTIONS]``."""
        words = ["usage:", self.prog, "[OPTIONS]"]
        for action in self._actions:
            name = str(action.metavar or action.dest)
            if not action.option_strings:
                words.append(formatter._format_args(action, name))
            elif action.required:
                words += [action.option_strings[0], formatter._format_args(action, name)]
        return " ".join(words)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; a command reports unknown options itself, before missing arguments."""
        args = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            self._check_options(args)
        parsed, extra = super().parse_known_args(args, namespace)
        if extra and extra[0].startswith("-"):
            self._refuse_option(extra[0])
        if extra:
            self.error(f"{self.prog} takes no further argument, and got {extra[0]!r}")
        return parsed, extra

    def _check_options(self, args: Sequence[str]) -> None:
        for word in args:
            if word == "--":
                return
            option = word.partition("=")[0]
            if option.startswith("--") and " " not in word and option not in self._option_string_actions:
                self._refuse_option(option)

    def _refuse_option(self, option: str) -> NoReturn:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        self.error(f"{self.prog} has no option {option}{did_you_mean(option, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse values that are not among an option's choices, and unknown commands."""
        if action.choices is None or value in action.choices:
            return
        hint = did_you_mean(str(value), action.choices)
        if isinstance(action, argparse._SubParsersAction):
            known = hint or f"; there are {_listed(list(action.choices))}"
            self.error(f"{self.prog} has no {str(action.metavar).lower()} {value!r}{known}")
        choices = ", ".join(map(str, action.choices))
        raise argparse.ArgumentError(action, f"invalid choice: {value!r} (choose from {choices}){hint}")

    def error(self, message: str) -> NoReturn:
        """Print the error and the command's help option, and exit with status 2."""
        print_line(f"hbtvm: error: {message}", sys.stderr)
        print_line(f"Try '{self.prog} --help'.", sys.stderr)
        self.exit(2)


class _HelpAll(argparse.Action):
    """Prints the whole help."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        print(parser.format_help(everything=True), end="")
        parser.exit()


class _Help(argparse.HelpFormatter):
    """Help folded between words to the terminal, up to a readable width."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(prog, max_help_position=30, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Fold descriptions and epilogs: each line is a paragraph, or a command of an example."""
        return "\n".join(
            _fold_command(line, width) if line.startswith("  hbtvm ") else fold(indent + line, width)
            for line in text.splitlines()
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        return fold(" ".join(text.split()), width).split("\n")


def _fold_command(line: str, width: int) -> str:
    """Fold a command line between its arguments, so that it can still be pasted into a shell."""
    if len(line) <= width:
        return line
    lines = ["  hbtvm"]
    for word in shlex.split(line, posix=False)[1:]:  # which keeps quotes
        if len(lines[-1]) + len(word) + len("  \\") > width:
            lines[-1] += " \\"
            lines.append(f"      {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def _listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
