/* Written by quantify: plain C11, nothing to include.
 *
 * Positions are grid positions, one per feature of the domain, in its order:
 *   0: r_0_0, 0...1
 *   1: r_0_1, 0...1
 *   2: r_0_2, 0...1
 *   3: r_1_0, 0...1
 *   4: r_1_1, 0...1
 *   5: r_1_2, 0...1
 *   6: r_2_0, 0...1
 *   7: r_2_1, 0...1
 *   8: r_2_2, 0...1
 */
typedef long long u1;
typedef _Bool bit;

/* the class index: 0 = no, 1 = yes */
int classify(const long long *positions)
{
  const u1 x1 = positions[1];
  const u1 x3 = positions[3];
  (void)positions;
  const u1 n1 = x3 ? 0 : 1;
  const u1 n0 = x1 ? 0 : n1;
  return n0;
}

/* 1 where the input lies in the region and satisfies the query tp */
int query_tp(const long long *positions)
{
  static const long long low[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  static const long long high[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
  for (int i = 0; i < 9; i++)
    if (positions[i] < low[i] || positions[i] >= high[i])
      return 0;
  const u1 x0 = positions[0] - low[0]; /* r_0_0: position - 0, below 2 */
  const u1 x1 = positions[1] - low[1]; /* r_0_1: position - 0, below 2 */
  const u1 x2 = positions[2] - low[2]; /* r_0_2: position - 0, below 2 */
  const u1 x3 = positions[3] - low[3]; /* r_1_0: position - 0, below 2 */
  const u1 x4 = positions[4] - low[4]; /* r_1_1: position - 0, below 2 */
  const u1 x5 = positions[5] - low[5]; /* r_1_2: position - 0, below 2 */
  const u1 x6 = positions[6] - low[6]; /* r_2_0: position - 0, below 2 */
  const u1 x7 = positions[7] - low[7]; /* r_2_1: position - 0, below 2 */
  const u1 x8 = positions[8] - low[8]; /* r_2_2: position - 0, below 2 */

  /* the tree, leaves first: 1 where the label is yes */
  const bit n1 = x3 ? 0 : 1;
  const bit n0 = x1 ? 0 : n1;

  /* the property */
  const bit p0 =
       (!x1 || !x3 || x0)
    && (!x1 || !x5 || x2)
    && (!x2 || !x6 || x0)
    && (!x2 || !x7 || x1)
    && (!x3 || !x1 || x4)
    && (!x3 || !x2 || x5)
    && (!x5 || !x6 || x3)
    && (!x5 || !x7 || x4)
    && (!x6 || !x1 || x7)
    && (!x6 || !x2 || x8)
    && (!x7 || !x3 || x6)
    && (!x7 || !x5 || x8);

  return p0 && n0;
}

/* 1 where the input lies in the region and satisfies the query fp */
int query_fp(const long long *positions)
{
  static const long long low[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  static const long long high[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
  for (int i = 0; i < 9; i++)
    if (positions[i] < low[i] || positions[i] >= high[i])
      return 0;
  const u1 x0 = positions[0] - low[0]; /* r_0_0: position - 0, below 2 */
  const u1 x1 = positions[1] - low[1]; /* r_0_1: position - 0, below 2 */
  const u1 x2 = positions[2] - low[2]; /* r_0_2: position - 0, below 2 */
  const u1 x3 = positions[3] - low[3]; /* r_1_0: position - 0, below 2 */
  const u1 x4 = positions[4] - low[4]; /* r_1_1: position - 0, below 2 */
  const u1 x5 = positions[5] - low[5]; /* r_1_2: position - 0, below 2 */
  const u1 x6 = positions[6] - low[6]; /* r_2_0: position - 0, below 2 */
  const u1 x7 = positions[7] - low[7]; /* r_2_1: position - 0, below 2 */
  const u1 x8 = positions[8] - low[8]; /* r_2_2: position - 0, below 2 */

  /* the tree, leaves first: 1 where the label is yes */
  const bit n1 = x3 ? 0 : 1;
  const bit n0 = x1 ? 0 : n1;

  /* the property */
  const bit p0 =
       (!x1 || !x3 || x0)
    && (!x1 || !x5 || x2)
    && (!x2 || !x6 || x0)
    && (!x2 || !x7 || x1)
    && (!x3 || !x1 || x4)
    && (!x3 || !x2 || x5)
    && (!x5 || !x6 || x3)
    && (!x5 || !x7 || x4)
    && (!x6 || !x1 || x7)
    && (!x6 || !x2 || x8)
    && (!x7 || !x3 || x6)
    && (!x7 || !x5 || x8);

  return !p0 && n0;
}

/* 1 where the input lies in the region and satisfies the query all */
int query_all(const long long *positions)
{
  static const long long low[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  static const long long high[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
  for (int i = 0; i < 9; i++)
    if (positions[i] < low[i] || positions[i] >= high[i])
      return 0;

  return 1;
}
