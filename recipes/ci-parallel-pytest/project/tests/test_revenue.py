import pandas as pd
import pytest

from shop.prices import daily, revenue, table


@pytest.mark.parametrize("seed", range(4))
def test_revenue_is_the_sum_over_the_items(seed):
    sales = table(seed)
    expected = (sales["price"] * sales["count"]).sum()
    assert revenue(sales).sum() == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_days_add_up_to_the_revenue(seed):
    sales = table(seed)
    assert daily(sales).sum() == pytest.approx(revenue(sales).sum(), abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_survives_csv(seed, tmp_path):
    sales = table(seed)
    sales.to_csv(tmp_path / "sales.csv", index=False)
    again = pd.read_csv(tmp_path / "sales.csv", parse_dates=["day"])
    pd.testing.assert_frame_equal(sales, again)
