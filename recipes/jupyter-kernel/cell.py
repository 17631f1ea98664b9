# Runs in the Jupyter kernel before the snapshot: it imports what notebooks import, and uses each once.
%matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.linalg
import scipy.optimize
import scipy.stats
import sklearn.linear_model

frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["a", "b", "c"])
display(frame.describe())
scipy.optimize.minimize(lambda x: (x[0] - 1) ** 2 + x[1] ** 2, [0, 0])
scipy.stats.ttest_ind(frame["a"], frame["b"])
scipy.linalg.eigvalsh(frame.cov())
sklearn.linear_model.LinearRegression().fit(frame[["a", "b"]], frame["c"])
frame.plot()
plt.show()
