"""Train a decision tree to recognise partial orders on 4 nodes from a balanced sample, and save it as model.pkl.

An input is the 4×4 adjacency matrix of a relation, row by row: 16 zeros and ones. The tree sees 400 of the 65,536
relations; `quantify count` tells how it does on all of them.
"""

import itertools
import pickle
import random

from sklearn.tree import DecisionTreeClassifier

NODES = range(4)


def is_partial_order(bits):
    """Antisymmetric and transitive."""
    related = [bits[4 * i : 4 * i + 4] for i in NODES]
    antisymmetric = not any(related[i][j] and related[j][i] for i in NODES for j in NODES if i != j)
    transitive = all(related[i][k] for i in NODES for j in NODES for k in NODES if related[i][j] and related[j][k])
    return antisymmetric and transitive


def main():
    positives, negatives = [], []
    for bits in itertools.product((0, 1), repeat=16):
        (positives if is_partial_order(bits) else negatives).append(bits)
    draw = random.Random(1)
    rows = [(bits, 1) for bits in draw.sample(positives, 400)] + [(bits, 0) for bits in draw.sample(negatives, 400)]
    draw.shuffle(rows)
    train, test = rows[:400], rows[400:]
    tree = DecisionTreeClassifier(random_state=1).fit([bits for bits, _ in train], [label for _, label in train])
    score = tree.score([bits for bits, _ in test], [label for _, label in test])
    with open("model.pkl", "wb") as file:
        pickle.dump(tree, file)
    print(f"model.pkl: {tree.get_n_leaves()} leaves, {100 * score:.1f} % right on {len(test)} test rows")


if __name__ == "__main__":
    main()
