"""Contexts of the Python kernel, and running code in one: compile, await, magics.

A context is a namespace with a working directory and variables of the environment. A new one begins with the
bindings that the warm-up left: modules, values and classes are the same objects, functions of the warm-up are
copied so that their globals are those of the new context.

Invariant: nothing here talks to the host, and every function may be interrupted.
"""
import __future__
import ast
import builtins
import io
import linecache
import os
import sys
import types

KEPT_SOURCES = 1000
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag
FUTURE &= ~0x10  # nested_scopes shares its bit with CO_NESTED
CO_COROUTINE = 0x80
MAGIC = "__forkd_magic__"
OWN_NAMES = frozenset(("__name__", "__builtins__", "__doc__", "__loader__", "__spec__", "__package__", "_",
                       "__annotations__", MAGIC))

contexts = {}
current = None  # the context whose working directory the process has
_warm = None  # bindings, compiler flags and working directory after the warm-up
_loop = None


class Context:
    """A namespace that is a real module, so that pickle and dataclasses find its definitions."""

    def __init__(self, name, cwd=None, env=None):
        if name == "default":
            module = "__main__"
        elif name.isidentifier():
            module = "context_" + name
        else:  # a dot would make the import system look for a package
            module = "context-" + name.encode().hex()
        self.module = types.ModuleType(module)
        self.space = self.module.__dict__
        self.space["__builtins__"] = builtins
        self.flags = AWAIT  # plus the __future__ features enabled so far
        self.count = 0
        self.env = env or {}
        self.home = cwd  # where it begins; None: where the warm-up ended
        self.cwd = cwd
        sys.modules[module] = self.module
        self.fill()

    def fill(self):
        """Begins with the bindings of the warm-up."""
        if _warm is None:
            return
        bindings, self.flags, cwd = _warm
        self.cwd = self.home or cwd
        space = self.space
        default = contexts["default"].space if "default" in contexts else space
        for name, value in bindings.items():
            if name in OWN_NAMES:
                continue
            if space is not default and type(value) is types.FunctionType and value.__globals__ is default:
                value = _rebound(value, space, self.module.__name__)
            space[name] = value

    def restart(self):
        """Begins again. Functions of the warm-up belong to the dict of the default context, so it stays."""
        for name in list(self.space):
            if name not in OWN_NAMES or name in ("_", "__annotations__", MAGIC):
                del self.space[name]
        self.flags = AWAIT
        self.count = 0
        self.cwd = self.home
        self.fill()


def _rebound(function, space, module):
    copy = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__,
                              function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = dict(function.__annotations__)
    copy.__qualname__ = function.__qualname__
    copy.__doc__ = function.__doc__
    copy.__module__ = module
    copy.__dict__.update(function.__dict__)
    return copy


def keep_warm():
    """New contexts begin with what the default one has now."""
    global _warm
    default = contexts["default"]
    _warm = (dict(default.space), default.flags, os.getcwd())
    for context in contexts.values():
        context.count = 0


def context_named(name):
    context = contexts.get(name)
    if context is None:
        context = contexts[name] = Context(name)
    return context


def cwd_of(context):
    return os.getcwd() if context is current or context.cwd is None else context.cwd


def enter(context):
    """Changes to the working directory of a context. That of the one before is kept with it."""
    global current
    if current is context:
        return
    if current is not None:
        try:
            current.cwd = os.getcwd()
        except FileNotFoundError:
            pass  # it was removed, and the context will fail to enter it
    if context.cwd is not None:
        os.chdir(context.cwd)
    current = context


def forget(context):
    """After a restart or drop of the current context, its directory must be entered again."""
    global current
    if current is context:
        current = None


async def _chain(codes, space):
    value = None
    for code in codes:
        value = eval(code, space)
        if code.co_flags & CO_COROUTINE:
            value = await value
    return value


def _await(codes, space):
    """Runs code that awaits. The loop and its tasks persist; the tasks continue whenever an eval awaits."""
    global _loop
    import asyncio
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    asyncio.set_event_loop(_loop)
    task = _loop.create_task(_chain(codes, space))
    try:
        return _loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            # With a timeout: the interrupt may have hit the loop just before it ran the task.
            _loop.run_until_complete(asyncio.wait([task], timeout=1))
        raise


def _compile(source, name, context):
    """Code objects to run in order; the last one gives the value."""
    flags = context.flags
    if "\n" not in source:
        try:  # mostly an expression, which compiles without an AST of Python objects
            return (compile(source, name, "eval", flags, True),)
        except SyntaxError:
            pass
    tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, True)
    body = tree.body
    last = body.pop() if body and type(body[-1]) is ast.Expr else None
    first = compile(tree, name, "exec", flags, True)
    context.flags = flags = flags | first.co_flags & FUTURE
    if last is None:
        return (first,)
    last = compile(ast.Expression(last.value), name, "eval", flags, True)
    return (first, last) if body else (last,)


def _compile_notebook(source, name, context):
    """Like _compile; code that is not Python may have magics."""
    try:
        return _compile(source, name, context)
    except SyntaxError as error:
        failure = error
    if "!" in source or "%" in source or "pip" in source:
        import forkd_magic
        python = forkd_magic.transform(source)
        if python is not None:
            run_more = lambda more: _run(_compile_notebook(more, name, context), context.space)  # noqa: E731
            context.space[MAGIC] = forkd_magic.Magics(context.space, run_more)
            return _compile(python, name, context)
    raise failure


def _run(codes, space):
    for code in codes:
        if code.co_flags & CO_COROUTINE:
            return _await(codes, space)
    value = None
    for code in codes:
        value = eval(code, space)
    return value


def remember(name, source, count):
    # Tracebacks, inspect.getsource and pdb read this. Lines end where the compiler ends them, not as in
    # splitlines.
    lines = io.StringIO(source, None).readlines() if "\n" in source or "\r" in source else [source + "\n"]
    linecache.cache[name] = (len(source), None, lines, name)
    if count > KEPT_SOURCES:
        linecache.cache.pop("<eval-%d>" % (count - KEPT_SOURCES), None)


def run(context, name, source):
    """The value of the last expression of the source, or None."""
    return _run(_compile_notebook(source, name, context), context.space)
