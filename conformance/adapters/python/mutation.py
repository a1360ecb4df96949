"""Switching checks of the reader off: its modules are rewritten while they are imported.

Each `raise E` becomes: make E; when it is a refusal for a rule that is switched off, go on as if the check had passed. So it is
with what is reported or yielded instead of raised. Nothing here knows a rule; `mutations` has what is no single check.
"""

import ast
import importlib.abc
import importlib.machinery
import re
import sys
from pathlib import Path

READER = Path(__file__).resolve().parent / "waystation_reader"
_PACKAGE = "waystation_reader"
_RULE = re.compile("[a-z]+[.][a-z]+(-[a-z]+)*")
_NO_RULES = {"manifest.json", "waystation.commit", "torch.randperm-cpu"}
_MAKERS = {"Refusal", "bad", "at", "_disagree"}
_REPORTERS = {"report", "breach"}


def install(off):
    """From here on the reader is imported without the checks of the rules in `off`, a set that may still grow."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _Finder(off))


def rules():
    """The rules that the reader raises, by the words in its source."""
    found = set()
    for path in READER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _RULE.fullmatch(node.value):
                found.add(node.value)
    return sorted(found - _NO_RULES)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, off):
        self.off = off

    def find_spec(self, name, path, target=None):
        if name != _PACKAGE and not name.startswith(_PACKAGE + "."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Loader(name, spec.origin, self.off)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name, path, off):
        super().__init__(name, path)
        self.off = off

    def get_code(self, fullname):
        tree = _Rewriter().visit(ast.parse(self.get_data(self.path), self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module):
        module.__dict__.update(_switches(self.off))
        super().exec_module(module)


def _switches(off):
    def is_off(refusal):
        return getattr(refusal, "rule", None) in off

    def refuse(error, *cause):
        if is_off(error):
            return
        if cause:
            raise error from cause[0]
        raise error

    def refuse_again():
        error = sys.exc_info()[1]
        if not is_off(error):
            raise error

    def unless_off(report, refusal, *more, **members):
        return None if is_off(refusal) else report(refusal, *more, **members)

    def kept(refusal):
        return None if is_off(refusal) else refusal

    return {"__refuse__": refuse, "__refuse_again__": refuse_again, "__unless_off__": unless_off, "__kept__": kept}


class _Rewriter(ast.NodeTransformer):
    def visit_Raise(self, node):
        self.generic_visit(node)
        if node.exc is None:
            call = _call("__refuse_again__")
        else:
            call = _call("__refuse__", node.exc, *([node.cause] if node.cause else []))
        return ast.copy_location(ast.Expr(call), node)

    def visit_Call(self, node):
        self.generic_visit(node)
        name = _called(node.func)
        reports = name in _REPORTERS or name == "append" and any(_makes_refusal(argument) for argument in node.args)
        if reports and node.args:
            return ast.copy_location(_call("__unless_off__", node.func, *node.args, keywords=node.keywords), node)
        return node

    def visit_Expr(self, node):
        self.generic_visit(node)
        if isinstance(node.value, ast.Yield) and _makes_refusal(node.value.value):
            named = ast.NamedExpr(ast.Name("__one__", ast.Store()), _call("__kept__", node.value.value))
            again = ast.Expr(ast.Yield(ast.Name("__one__", ast.Load())))
            return ast.copy_location(ast.If(named, [again], []), node)
        return node


def _call(name, *arguments, keywords=()):
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), list(keywords))


def _called(function):
    return getattr(function, "id", getattr(function, "attr", None))


def _makes_refusal(node):
    return isinstance(node, ast.Call) and _called(node.func) in _MAKERS
