"""What STYLE bounds and a linter does not: sizes, names, who may touch what."""

import ast
import re
from collections.abc import Iterator

import pytest

from architecture.source import ROOT, Module, modules, repository_files

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 75
NAMELESS = {"utils", "util", "common", "helpers", "helper", "base", "core", "misc", "manager"}

# Module -> why it touches os.environ though it is not config.py.
ENVIRONMENT_READERS = {
    "config": "Settings.from_environ()",
}
# Names with an underscore that the standard library documents.
DOCUMENTED_UNDERSCORES = {"_asdict", "_replace", "_fields", "_make", "_exit", "_getframe"}
# What makes a module-level value something that is filled later: state.
CONTAINERS = {
    "dict", "list", "set", "bytearray", "deque", "defaultdict", "OrderedDict", "Counter", "WeakSet",
    "WeakKeyDictionary", "WeakValueDictionary", "local", "Lock", "RLock", "Condition", "Event", "Queue", "SimpleQueue",
}  # fmt: skip


def test_no_module_is_longer_than_reads_well() -> None:
    long = {module.name: lines for module in modules() if (lines := module.text.count("\n")) > MAX_MODULE_LINES}
    assert not long, f"split by reason to change: {long}"


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{module.at(node)} {node.name}": lines
        for module in modules()
        for node in module.nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long, f"ask what two ideas live there: {long}"


def test_every_module_is_named_by_its_idea() -> None:
    nameless = [module.name for module in modules() if NAMELESS & set(re.split(r"[._]", module.name))]
    assert not nameless, "name the idea, or put it beside its caller"


def test_modules_are_two_levels_deep_and_three_only_in_kubernetes() -> None:
    deep = [
        module.name
        for module in modules()
        if module.path.name != "__init__.py"
        and module.name.count(".") > (2 if module.name.startswith("jobs.kubernetes.") else 1)
    ]
    assert not deep


def test_packages_are_empty_so_that_a_name_is_exported_once() -> None:
    full = [
        module.name
        for module in modules()
        if module.path.name == "__init__.py" and module.name not in {"", "testing"} and has_code(module)
    ]
    assert not full, "a public name is exported in danaus/__init__.py, and nowhere else"


def has_code(module: Module) -> bool:
    return any(not is_docstring(statement) for statement in module.tree.body)


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_no_global_statement() -> None:
    found = [module.at(node) for module in modules() for node in module.nodes() if isinstance(node, ast.Global)]
    assert not found, "pass state down, do not share it"


def test_no_bare_except() -> None:
    found = [
        module.at(node)
        for module in modules()
        for node in module.nodes()
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not found, "every failure reaches a supervisor or a caller"


def test_the_environment_is_read_in_one_place() -> None:
    found = [
        where for module in modules() if module.name not in ENVIRONMENT_READERS for where in environment_uses(module)
    ]
    assert not found, "take it from Settings, or give the reason in ENVIRONMENT_READERS"


def environment_uses(module: Module) -> Iterator[str]:
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for node in module.nodes():
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in names:
                yield module.at(node)
            case ast.ImportFrom(module="os", names=aliases) if names & {alias.name for alias in aliases}:
                yield module.at(node)
            case _:
                pass


def test_importing_a_module_does_no_work() -> None:
    found = [
        module.at(statement)
        for module in modules()
        for statement in module.tree.body
        if not isinstance(
            statement,
            ast.Import
            | ast.ImportFrom
            | ast.FunctionDef
            | ast.AsyncFunctionDef
            | ast.ClassDef
            | ast.Assign
            | ast.AnnAssign,
        )
        and not is_docstring(statement)
        and not is_platform_or_main_check(statement)
    ]
    assert not found, "only definitions stand at module level"


def is_platform_or_main_check(statement: ast.stmt) -> bool:
    known = r"(not )?TYPE_CHECKING|__name__ == '__main__'|sys\.(platform|version_info)\b.*"
    return isinstance(statement, ast.If) and re.fullmatch(known, ast.unparse(statement.test)) is not None


def test_no_module_holds_state() -> None:
    found = [
        module.at(statement)
        for module in modules()
        for statement in module.tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value and is_fillable(statement.value)
    ]
    assert not found, "an empty container at module level is a singleton; put it into the object that owns it"


def is_fillable(value: ast.expr) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[]):
            return name in CONTAINERS
        case _:
            return False


@pytest.mark.parametrize("folder", ["src", "tests", "examples", "benchmarks"])
def test_private_names_stay_in_their_module(folder: str) -> None:
    found = [
        where
        for path in repository_files()
        if path.suffix == ".py" and path.is_relative_to(ROOT / folder)
        for where in private_crossings(Module(path), is_own=folder == "src")
    ]
    assert not found, "make the name public, or move the caller beside it"


def private_crossings(module: Module, *, is_own: bool) -> Iterator[str]:
    """Private names imported from danaus, and in danaus itself also private attributes defined elsewhere."""
    own = set(private_definitions(module)) | DOCUMENTED_UNDERSCORES
    for node in module.nodes():
        match node:
            case ast.ImportFrom(module=source, names=aliases) if (source or "").partition(".")[0] == "danaus":
                for name in [*(source or "").split("."), *(alias.name for alias in aliases)]:
                    if is_private(name):
                        yield f"{module.at(node)} {name}"
            case ast.Attribute(attr=name) if is_own and is_private(name) and name not in own:
                yield f"{module.at(node)} {name}"
            case _:
                pass


def private_definitions(module: Module) -> Iterator[str]:
    for node in module.nodes():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=slots)):
                yield from (slot.value for slot in slots if isinstance(slot, ast.Constant))
            case _:
                pass


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def test_a_todo_says_why() -> None:
    bare = re.compile(r"#\s*(FIXME|XXX|HACK|TODO(?!\S*: \w+ \w+ \w+))")
    found = [
        f"{module.path.relative_to(ROOT)}:{number}"
        for module in modules()
        for number, line in enumerate(module.text.splitlines(), start=1)
        if bare.search(line)
    ]
    assert not found, "write `TODO: reason a reader can act on`"


def test_exceptions_live_in_errors() -> None:
    found = [
        f"{module.at(node)} {node.name}"
        for module in modules()
        if module.name != "errors"
        for node in module.nodes()
        if isinstance(node, ast.ClassDef) and any(is_exception(base) for base in node.bases)
    ]
    assert not found, "one tree, in errors.py"


def is_exception(base: ast.expr) -> bool:
    name = ast.unparse(base).rpartition(".")[2]
    return name.endswith(("Error", "Exception")) or name in {"DeliveryError", "MeshFailed", "Unreachable"}
