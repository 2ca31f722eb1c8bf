"""Train a decision tree on the 8×8 digit images that come with scikit-learn; save model.pkl and ten test images."""

import csv
import pickle

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier


def main():
    digits = load_digits()
    pixels, labels = digits.data.astype(int), digits.target
    x_train, x_test, y_train, y_test = train_test_split(pixels, labels, test_size=0.25, random_state=0)
    tree = DecisionTreeClassifier(random_state=0).fit(x_train, y_train)
    with open("model.pkl", "wb") as file:
        pickle.dump(tree, file)
    # One test image a label that the tree gets right: the balls are centred on these.
    right = [row for row in range(len(x_test)) if tree.predict(x_test[row : row + 1])[0] == y_test[row]]
    chosen = [next(row for row in right if y_test[row] == label) for label in range(10)]
    with open("digits.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"px_{i}" for i in range(64)] + ["target"])
        writer.writerows([*x_test[row], y_test[row]] for row in chosen)
    print(f"model.pkl: {tree.get_n_leaves()} leaves, {100 * tree.score(x_test, y_test):.1f} % right on the test images")


if __name__ == "__main__":
    main()
