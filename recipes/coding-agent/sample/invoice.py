"""Invoices: the sample project of the coding agent."""

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Iterable

CENT = Decimal("0.01")


def total(prices: Iterable[Decimal], tax: Decimal) -> Decimal:
    """The sum with tax, rounded half up as invoices are."""
    exact = sum(prices, Decimal(0)) * (1 + tax)
    return exact.quantize(CENT, ROUND_HALF_EVEN)


def statistics_mean(prices: Iterable[Decimal]) -> Decimal:
    """The mean, rounded half to even so that it has no bias."""
    values = list(prices)
    mean = sum(values, Decimal(0)) / len(values)
    return mean.quantize(CENT, ROUND_HALF_EVEN)


def shown(amount: Decimal) -> str:
    """An amount for people."""
    return f"{amount.quantize(CENT, ROUND_HALF_UP)} EUR"
