/* Written by quantify: plain C11, nothing to include.
 *
 * Positions are grid positions, one per feature of the domain, in its order:
 *   0: rho * / \u03c1, 0...10
 *   1: theta\x0aspeed, 0...8
 *   2: colour, 0...2
 *   3: on, 0...1
 *   4: unused, 0...5
 */
typedef long long u2;
typedef long long u3;
typedef long long u4;
typedef long long s4;
typedef long long u5;
typedef long long u6;
typedef long long s6;
typedef _Bool bit;

/* the class index: 0 = left, 1 = right, 2 = stop */
int classify(const long long *positions)
{
  const u4 x0 = positions[0];
  const u4 x1 = positions[1];
  const u2 x2 = positions[2];
  (void)positions;
  const u2 n1 = (x2 == 1) ? 1 : 0;
  const u2 n2 = (x1 >= 7) ? 2 : 1;
  const u2 n0 = (x0 >= 4) ? n2 : n1;
  return n0;
}

/* 1 where the input lies in the region and satisfies the query violated * / */
int query_violated___(const long long *positions)
{
  static const long long low[5] = {0, 0, 0, 0, 0};
  static const long long high[5] = {11, 9, 3, 2, 6};
  for (int i = 0; i < 5; i++)
    if (positions[i] < low[i] || positions[i] >= high[i])
      return 0;
  const u4 x0 = positions[0] - low[0]; /* rho * / \u03c1: position - 0, below 11 */
  const u4 x1 = positions[1] - low[1]; /* theta\x0aspeed: position - 0, below 9 */
  const u2 x2 = positions[2] - low[2]; /* colour: position - 0, below 3 */

  /* the tree, leaves first: 1 where the label is stop */
  const bit n2 = (x1 >= 7) ? 1 : 0;
  const bit n0 = (x0 >= 4) ? n2 : 0;

  /* the tree, leaves first: 1 where the label is right */
  const bit t1n1 = (x2 == 1) ? 1 : 0;
  const bit t1n2 = (x1 >= 7) ? 0 : 1;
  const bit t1n0 = (x0 >= 4) ? t1n2 : t1n1;

  /* the property */
  const u6 v0 = 4 + 3 * x0;
  const u5 v1 = 2 * x1;
  const u5 v2 = 9 + x0 - x1;
  const u3 v3 = v2 / 4;
  const s4 v4 = x0 - 5;
  const s4 v5 = x1 - 2;
  const s6 v6 = v4 * v5;
  const bit b8 = x0 >= 2 && x0 < 5;
  const bit b9 = x2 != 2;
  const u2 v10 = b8 + b9 + t1n0;

  return (x0 >= 2) && (!(n0 && ((v0 <= v1) && (v3 != 2) && (v6 < 20) && (v10 == 2))));
}
