"""Execute the notebooks of this folder in place, each in a fresh kernel; an error in a cell ends it with 1.

python examples/notebooks/execute.py [NOTEBOOK …]
"""

import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

LIMIT_S = 300
"""For all notebooks together."""
TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}/\w+")
FOLDER = Path(__file__).resolve().parent


def execute(path: Path) -> str:
    """Execute a notebook and write its outputs; returns what went wrong, or nothing."""
    notebook = nbformat.read(path, as_version=4)
    try:
        NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(FOLDER.parents[1])}}).execute()
    except CellExecutionError as error:
        return str(error)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        # Progress, warnings and temporary folders differ from run to run.
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "text" in output:
                    output["text"] = TEMPORARY.sub("TMP", output["text"])
    nbformat.write(notebook, path)
    return ""


def main(names: list[str]) -> int:
    """Execute the named notebooks, or all."""
    began, wrong = time.perf_counter(), 0
    for path in [Path(name) for name in names] or sorted(FOLDER.glob("*.ipynb")):
        started = time.perf_counter()
        error = execute(path)
        wrong += bool(error)
        print(f"{time.perf_counter() - started:6.1f} s  {path.name}  {error or 'done'}", flush=True)
    total_s = time.perf_counter() - began
    print(f"{total_s:6.1f} s in all")
    return 1 if wrong or total_s > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
