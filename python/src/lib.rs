//! `waystation._core`: what of the package is not Python.
