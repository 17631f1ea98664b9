"""What notebooks have beside Python: `!command`, `%magic` and `%%magic`.

Code that Python compiles is never touched. Otherwise, lines that begin a statement with `!` or `%`, or assign
such a line to a name, become calls of `_line` and `_system`; line numbers stay. Lines inside strings,
brackets and continued lines are left alone.
"""
import os
import re
import signal
import subprocess
import sys
import time

import forkd_display

HOOK = "__forkd_magic__"
ASSIGN = re.compile(r"^(\s*)([A-Za-z_][\w.\[\]'\", ]*?)\s*=\s*([!%])(?!=)(.*)$")
START = re.compile(r"^(\s*)(!!?|%)(.*)$")
CELL = re.compile(r"\s*%%(\w+)[ \t]*(.*?)[ \t]*(?:\n|$)")
NAME = re.compile(r"\$(\$|[A-Za-z_]\w*)|\{([^{}\n]+)\}")
PIP = re.compile(r"^\s*(pip3?)\s+(install|uninstall|list|show|freeze)\b(.*)$")
TEXTS = {"html": "html", "markdown": "markdown", "latex": "latex", "svg": "svg", "javascript": "javascript",
         "js": "javascript"}


class MagicError(Exception):
    """A magic that does not exist or is used wrongly."""


class Lines(list):
    """The lines that a command wrote."""

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)


# --- Which lines are not Python

def _scan(line, state):
    """The state after a line: (quote that is open or None, depth of brackets, whether the line continues)."""
    quote, depth, _ = state
    at = 0
    while at < len(line):
        if quote is not None:
            if line[at] == "\\":
                at += 2
                continue
            if line.startswith(quote, at):
                at += len(quote)
                quote = None
                continue
            at += 1
            continue
        char = line[at]
        if char == "#":
            break
        if char in "'\"":
            quote = char * 3 if line.startswith(char * 3, at) else char
            at += len(quote)
            continue
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        at += 1
    continued = line.endswith("\\")
    if quote is not None and len(quote) == 1 and not continued:
        quote = None  # an unclosed string is an error of its line
    return quote, depth, continued


def transform(source):
    """The source as Python, or None if no line of it is a magic."""
    cell = CELL.match(source)
    if cell is not None:
        body = source[cell.end():]
        call = "%s.cell(%r, %r, %r)" % (HOOK, cell.group(1), cell.group(2), body)
        return "\n" * source[:cell.start(1)].count("\n") + call
    lines = source.split("\n")
    result = []
    state = (None, 0, False)
    found = False
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        fresh = state == (None, 0, False)
        new, extra = (_line_call(line, lines, at) if fresh else (None, 0))
        if new is None:
            result.append(line)
            state = _scan(line, state)
            continue
        found = True
        result.append(new)
        result.extend([""] * extra)
        at += extra
    return "\n".join(result) if found else None


def _line_call(line, lines, at):
    """The call for a magic line, and how many lines after it belong to it."""
    match = START.match(line)
    target = ""
    if match is not None:
        indent, sign, rest = match.groups()
    else:
        match = ASSIGN.match(line)
        if match is not None:
            indent, target, sign, rest = match.groups()
            target += " = "
        else:
            match = PIP.match(line)
            if match is None:
                return None, 0
            indent, sign = line[:len(line) - len(line.lstrip())], "%"
            rest = "pip %s%s" % (match.group(2), match.group(3))
    extra = 0
    while rest.endswith("\\") and at + extra < len(lines):
        rest = rest[:-1] + " " + lines[at + extra].strip()
        extra += 1
    if sign == "%":
        name, _, rest = rest.strip().partition(" ")
        call = "%s.line(%r, %r)" % (HOOK, name, rest.strip())
    elif target or sign == "!!":
        call = "%s.capture(%r)" % (HOOK, rest)
    else:
        call = "%s.system(%r)" % (HOOK, rest)
    return indent + target + call, extra


# --- Commands

def _shell():
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def _run(argv, text=None, capture=False):
    """Runs a program whose output is that of the kernel. An interrupt ends it and everything it started."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = subprocess.Popen(argv, stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE if capture else None, start_new_session=True)
    try:
        output, _ = process.communicate(None if text is None else text.encode("utf-8", "surrogateescape"))
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, output


class Magics:
    """The magics of one context. `run(source)` evaluates Python in it and returns the value."""

    def __init__(self, space, run):
        self._space = space
        self._evaluate = run

    def _expand(self, text):
        """Replaces `$name` and `{expression}` by values; leaves what is not a name or fails to the shell."""
        def value(match):
            name, expression = match.groups()
            if name == "$":
                return "$"
            if name is not None:
                return str(self._space[name]) if name in self._space else match.group(0)
            try:
                return str(eval(expression, self._space))
            except Exception:
                return match.group(0)
        return NAME.sub(value, text)

    def system(self, command):
        code, _ = _run([_shell(), "-c", self._expand(command)])
        self._space["_exit_code"] = code
        if re.match(r"\s*pip3?\s", command):
            self._installed()

    def capture(self, command):
        code, output = _run([_shell(), "-c", self._expand(command)], capture=True)
        self._space["_exit_code"] = code
        return Lines(output.decode("utf-8", "replace").splitlines())

    def line(self, name, rest):
        method = getattr(self, "line_" + name, None)
        if method is None:
            raise MagicError("there is no magic %%%s here; use !command for programs" % name)
        return method(rest)

    def cell(self, name, rest, body):
        if name in TEXTS:
            return forkd_display.show({TEXTS[name]: body})
        method = getattr(self, "cell_" + name, None)
        if method is None:
            raise MagicError("there is no magic %%%%%s here" % name)
        return method(rest, body)

    # Lines

    def line_pip(self, rest):
        environment = os.environ.get("PIP_BREAK_SYSTEM_PACKAGES")
        os.environ["PIP_BREAK_SYSTEM_PACKAGES"] = "1"  # the machine belongs to this code
        try:
            command = "%s -m pip %s" % (sys.executable, self._expand(rest))
            self._space["_exit_code"], _ = _run([_shell(), "-c", command])
        finally:
            if environment is None:
                del os.environ["PIP_BREAK_SYSTEM_PACKAGES"]
            else:
                os.environ["PIP_BREAK_SYSTEM_PACKAGES"] = environment
        self._installed()

    def _installed(self):
        import importlib
        importlib.invalidate_caches()

    def line_cd(self, rest):
        path = self._expand(rest).strip("'\"") or "~"
        os.chdir(os.path.expanduser(path))
        print(os.getcwd())

    def line_pwd(self, _rest):
        return os.getcwd()

    def line_ls(self, rest):
        self.system("ls " + rest)

    def line_env(self, rest):
        if not rest:
            return dict(os.environ)
        name, sign, value = rest.partition("=") if "=" in rest else rest.partition(" ")
        if not sign:
            return os.environ.get(name)
        os.environ[name.strip()] = self._expand(value.strip())
        print("env: %s=%s" % (name.strip(), os.environ[name.strip()]))

    line_set_env = line_env

    def line_matplotlib(self, _rest):
        """Accepted: figures are shown at the end of the cell anyway."""

    def line_load_ext(self, rest):
        if rest != "autoreload":
            raise MagicError("cannot load the extension %r: there are none here" % rest)

    def line_autoreload(self, _rest):
        """Accepted without effect."""

    line_config = line_autoreload

    def line_run(self, rest):
        import runpy
        import shlex
        path, *arguments = shlex.split(self._expand(rest)) or [""]
        if not path:
            raise MagicError("%run needs a file")
        before = sys.argv
        sys.argv = [path] + arguments
        try:
            space = runpy.run_path(path, run_name="__main__")
        finally:
            sys.argv = before
        self._space.update((name, value) for name, value in space.items() if not name.startswith("__"))

    def line_time(self, rest):
        return self._timed(rest)

    def line_timeit(self, rest):
        self._timeit(rest, "")

    def line_system(self, rest):
        return self.capture(rest)

    line_sx = line_system

    # Cells

    def cell_bash(self, rest, body, shell=None):
        code, _ = _run([shell or _shell(), "-s"] + rest.split(), body)
        self._space["_exit_code"] = code
        if code != 0:
            raise subprocess.CalledProcessError(code, "%%bash" if shell is None else "%%sh")

    def cell_sh(self, rest, body):
        self.cell_bash(rest, body, "/bin/sh")

    def cell_writefile(self, rest, body):
        words = rest.split()
        append = "-a" in words or "--append" in words
        paths = [word for word in words if word not in ("-a", "--append")]
        if len(paths) != 1:
            raise MagicError("%%writefile needs one file name")
        path = os.path.expanduser(paths[0].strip("'\""))
        exists = os.path.exists(path)
        with open(path, "a" if append else "w", encoding="utf-8") as file:
            file.write(body if body.endswith("\n") else body + "\n")
        print("%s %s" % ("Appending to" if append else "Overwriting" if exists else "Writing", path))

    cell_file = cell_writefile

    def cell_time(self, rest, body):
        return self._timed(body if not rest else rest + "\n" + body, 1)

    def cell_timeit(self, rest, body):
        self._timeit(rest, body)

    def cell_capture(self, _rest, body):
        import contextlib
        import io
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self._evaluate("\n" + body)

    # Times

    def _timed(self, source, before=0):
        cpu, wall = os.times(), time.perf_counter()
        try:
            return self._evaluate("\n" * before + source)
        finally:
            wall = time.perf_counter() - wall
            now = os.times()
            user, system = now[0] - cpu[0], now[1] - cpu[1]
            print("CPU times: user %s, sys: %s, total: %s" % (_span(user), _span(system), _span(user + system)))
            print("Wall time: %s" % _span(wall))

    def _timeit(self, rest, body):
        import timeit
        number = repeat = None
        words = rest
        while True:
            match = re.match(r"-(n|r)\s*(\d+)\s*|-(q|o|c|t|p\s*\d+)\s+", words)
            if match is None:
                break
            if match.group(1) == "n":
                number = int(match.group(2))
            elif match.group(1) == "r":
                repeat = int(match.group(2))
            words = words[match.end():]
        statement, setup = (body, words) if body else (words, "pass")
        timer = timeit.Timer(statement or "pass", setup or "pass", globals=self._space)
        if number is None:
            number, _ = timer.autorange()
        runs = [each / number for each in timer.repeat(repeat or 7, number)]
        mean = sum(runs) / len(runs)
        deviation = (sum((each - mean) ** 2 for each in runs) / len(runs)) ** 0.5
        print("%s ± %s per loop (mean ± std. dev. of %d runs, %s loops each)"
              % (_span(mean), _span(deviation), len(runs), format(number, ",")))


def _span(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds / 1e-9)
