# Makes this directory the root of the tests.
