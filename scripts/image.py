"""Does the steps of the Dockerfile's build stage on this machine, without a container engine: target/image is then the
image's own files, to be tested by hand.

The steps are the Dockerfile's text, so that a flag changed there is a flag changed here. Only the stage's two places in
the file system, /machine and /image, are put under target/.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGE = ROOT / "target" / "image"


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, in order, each on one line and without the flags of a `RUN --mount`."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(name, re.sub(r"^(--\S+\s+)+", "", rest) if name == "RUN" else rest) for name, rest in found]


def final_stage(text: str) -> list[tuple[str, str]]:
    """The instructions of the stage that becomes the image, its FROM first."""
    found = instructions(text)
    start = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def build_step(text: str) -> tuple[dict[str, str], str]:
    """The environment and the shell commands that make the image's files."""
    environment: dict[str, str] = {}
    for name, rest in instructions(text):
        if name == "ENV":
            environment |= dict(word.split("=", 1) for word in rest.split())
        if name == "RUN" and "cargo build" in rest:
            return environment, rest
    raise SystemExit("Dockerfile: no RUN has a cargo build")


def main() -> None:
    environment, commands = build_step((ROOT / "Dockerfile").read_text())
    machine = platform.machine()
    for program in ("gcc", "strip"):
        if not shutil.which(f"{machine}-linux-gnu-{program}"):
            raise SystemExit(f"please install {machine}-linux-gnu-{program}: the Dockerfile's build step calls it")
    IMAGE.mkdir(parents=True, exist_ok=True)
    # What is there is replaced: a link that points somewhere already cannot be made.
    for old in (IMAGE / "bin", IMAGE / "palang"):
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    (IMAGE / "machine").write_text(f"{machine}\n")
    here = commands.replace("$(cat /machine)", f"$(cat '{IMAGE}/machine')")
    # Where they are written to, not where links point to.
    here = re.sub(r"(?<=\s)/image/", f"{IMAGE}/", here)
    print(f"image: {' '.join(commands.split())}", file=sys.stderr)
    # The step names target/ itself.
    mine = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", here], cwd=ROOT, env={**mine, **environment})
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
