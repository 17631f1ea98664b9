"""Imports what data code imports, and uses each once: libraries load more at the first call."""
import os

os.environ["HOME"] = "/home/user"
os.chdir("/home/user")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd


def _warm():
    import io
    import json

    import PIL.Image
    import requests  # noqa: F401
    import sklearn.cluster  # noqa: F401
    import sklearn.ensemble  # noqa: F401
    import sklearn.linear_model
    import sklearn.metrics  # noqa: F401
    import sklearn.model_selection  # noqa: F401
    import sklearn.preprocessing  # noqa: F401
    import sympy

    numbers = np.random.default_rng(0).normal(size=(64, 4))
    np.linalg.svd(numbers)
    np.linalg.solve(numbers[:4], numbers[:4])
    np.random.random(8)
    table = pd.DataFrame(numbers, columns=list("abcd"))
    table["e"] = pd.date_range("2020-01-01", periods=64)
    table["f"] = "text"
    table.groupby("f")["a"].mean()
    table.describe()
    pd.read_csv(io.StringIO(table.to_csv())).merge(table, on="a")
    display(table)
    sklearn.linear_model.LinearRegression().fit(numbers[:, :3], numbers[:, 3])
    for draw in (lambda axes: axes.plot(numbers[:, 0], label="a"), lambda axes: axes.bar(["a", "b"], [1, 2]),
                 lambda axes: axes.scatter(numbers[:, 0], numbers[:, 1]), lambda axes: axes.hist(numbers[:, 0])):
        _, axes = plt.subplots()
        draw(axes)
        axes.set_title("Title")
        axes.set_xlabel("x")
        axes.legend(["a"])
        axes.grid(True)
        plt.show()
    image = PIL.Image.new("RGB", (8, 8), "red")
    image.save(io.BytesIO(), "PNG")
    image.save(io.BytesIO(), "JPEG")
    x = sympy.symbols("x")
    display(sympy.integrate(sympy.sin(x) ** 2, x), sympy.solve(x**2 - 2, x)[0])
    json.dumps(table.head().to_dict(), default=str)


_warm()
del _warm, os
