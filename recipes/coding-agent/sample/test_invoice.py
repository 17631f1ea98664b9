from decimal import Decimal

from invoice import shown, statistics_mean, total


def test_total_adds_tax() -> None:
    prices = [Decimal("10"), Decimal("5")]
    assert total(prices, Decimal("0.19")) == Decimal("17.85")


def test_total_rounds_half_up() -> None:
    assert total([Decimal("0.50")], Decimal("0.25")) == Decimal("0.63")


def test_mean_rounds_half_to_even() -> None:
    prices = [Decimal("0.62"), Decimal("0.63")]
    assert statistics_mean(prices) == Decimal("0.62")


def test_shown() -> None:
    assert shown(Decimal("1")) == "1.00 EUR"
