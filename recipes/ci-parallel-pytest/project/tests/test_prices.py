import pytest

from shop.prices import with_discount


@pytest.mark.parametrize("percent, expected", [(0, 80.0), (25, 60.0), (50, 40.0), (100, 0.0)])
def test_a_discount_lowers_the_price(percent, expected):
    assert with_discount(80, percent) == expected


@pytest.mark.parametrize("percent", [-1, 101])
def test_an_impossible_discount_is_refused(percent):
    with pytest.raises(ValueError, match="discount"):
        with_discount(80, percent)
