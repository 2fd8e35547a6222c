"""Shell completion of `pressbert`: verbs, their actions and options, and files.

    eval "$(pressbert completion bash)"                             # in ~/.bashrc; zsh: the same in ~/.zshrc
    pressbert completion fish > ~/.config/fish/completions/pressbert.fish

The scripts ask `pressbert --complete WORD…` for what may follow, so they know every verb that is installed.
"""

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Mapping, Sequence

from corpora.foundation.command import EXIT_DONE, ArgumentParser
from corpora.foundation.errors import SuiteError

SCRIPTS: Mapping[str, str] = {
    "bash": """\
_pressbert() {
    local words
    words="$(pressbert --complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _pressbert pressbert
""",
    "zsh": """\
#compdef pressbert
_pressbert() {
    local -a found
    found=("${(@f)$(pressbert --complete "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
    compadd -- $found
    _files
}
(( $+functions[compdef] )) || { autoload -U compinit && compinit }
compdef _pressbert pressbert
""",
    "fish": """\
complete -c pressbert -a '(pressbert --complete (commandline -opc)[2..] 2>/dev/null)'
""",
}
"""Shell → the script that it reads."""
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+)")
CHOICES = re.compile(r"^usage:.*?\{([\w,-]+)\}", re.DOTALL)
"""Actions of a verb in the first lines of its help, e.g. {encode,evaluate,train}."""


def candidates(words: Sequence[str], verbs: Mapping[str, str]) -> list[str]:
    """Return what may follow WORDS.

    Args:
        words: what is typed after `pressbert`, the word at the cursor left out.
        verbs: verb → module.
    """
    if not words:
        return sorted(verbs)
    if words[0] == "completion":
        return sorted(SCRIPTS)
    if words[0] not in verbs or verbs[words[0]] == "streamlit":
        return []
    text = _help(verbs[words[0]], [])
    found = CHOICES.search(text)
    actions = found[1].split(",") if found else []
    if len(words) > 1 and words[1] in actions:
        text, actions = _help(verbs[words[0]], [words[1]]), []
    return sorted({*actions, *OPTION.findall(text)})


def _help(module: str, words: list[str]) -> str:
    """Return the help of a command; empty where it needs a package that is not installed."""
    printed = io.StringIO()
    with contextlib.suppress(SystemExit, SuiteError, ImportError), contextlib.redirect_stdout(printed):
        importlib.import_module(module).main([*words, "--help"])
    return printed.getvalue()


def main(argv: list[str] | None = None) -> int:
    """Print the script of a shell."""
    parser = ArgumentParser("pressbert completion", "Print the script with which a shell completes pressbert.")
    parser.add_argument("shell", choices=sorted(SCRIPTS))
    sys.stdout.write(SCRIPTS[parser.parse(argv).shell])
    return EXIT_DONE
