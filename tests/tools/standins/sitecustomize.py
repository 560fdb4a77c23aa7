"""Stands in for all packages beyond the standard library (torch, numpy, ...), installed or not, so that a script's own imports and constants can be run without them.

An attribute of such a package is a class that takes any arguments and has any attribute. Like PyTorch such a package imports tokenize
from the standard library, which a script of that name beside the one that is started would hide."""
import os
import sys
from importlib.machinery import ModuleSpec


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent

    def __call__(cls, *_, **__):
        return cls

    def __iter__(cls):
        return iter(())


class Absent(metaclass=Anything):
    pass


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        package = name.split(".")[0]
        own = package in sys.stdlib_module_names or any(os.path.exists(os.path.join(d, package + ".py")) for d in sys.path if "-packages" not in d)
        return None if own or name.startswith("_") else ModuleSpec(name, Finder, is_package=True)

    @staticmethod
    def create_module(spec):
        sys.modules.pop("tokenize", None)
        from tokenize import generate_tokens  # noqa: F401
        return None

    @staticmethod
    def exec_module(module):
        module.__getattr__ = Absent.__class__.__getattr__.__get__(Absent)


sys.meta_path.insert(0, Finder)
