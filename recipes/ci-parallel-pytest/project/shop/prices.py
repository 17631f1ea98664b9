"""A stand-in for your project. What matters here: it imports pandas."""

import numpy as np
import pandas as pd


def with_discount(amount, percent):
    if not 0 <= percent <= 100:
        raise ValueError(f"a discount of {percent} percent")
    return round(amount * (100 - percent) / 100, 2)


def table(seed, rows=200):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "item": random.choice(["tea", "coffee", "cake"], rows),
            "price": random.uniform(1, 9, rows).round(2),
            "count": random.integers(1, 5, rows),
        }
    )


def revenue(sales):
    return sales.assign(total=sales["price"] * sales["count"]).groupby("item")["total"].sum().round(2)


def daily(sales):
    return sales.assign(total=sales["price"] * sales["count"]).resample("D", on="day")["total"].sum()
