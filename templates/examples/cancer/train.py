"""Train a decision tree on the Wisconsin breast cancer data that comes with scikit-learn, and save it as model.pkl."""

import pickle

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

# Six of the thirty measurements: worst radius, texture, perimeter, smoothness, concavity, concave points.
COLUMNS = [
    "worst radius",
    "worst texture",
    "worst perimeter",
    "worst smoothness",
    "worst concavity",
    "worst concave points",
]


def main():
    data = load_breast_cancer()
    chosen = [list(data.feature_names).index(name) for name in COLUMNS]
    diagnosis = np.where(data.target == 0, "malignant", "benign")
    x_train, x_test, y_train, y_test = train_test_split(
        data.data[:, chosen], diagnosis, test_size=0.25, random_state=0, stratify=diagnosis
    )
    tree = DecisionTreeClassifier(min_samples_leaf=3, random_state=0).fit(x_train, y_train)
    with open("model.pkl", "wb") as file:
        pickle.dump(tree, file)
    print(
        f"model.pkl: {tree.get_n_leaves()} leaves, {100 * tree.score(x_test, y_test):.1f} % right on the test patients"
    )


if __name__ == "__main__":
    main()
