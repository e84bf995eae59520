"""Measurements, apart from the tests: ``python -m benchmarks NAME`` (or ``tox -e bench -- NAME``)."""
