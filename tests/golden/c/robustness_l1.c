/* Written by quantify: plain C11, nothing to include.
 *
 * Positions are grid positions, one per feature of the domain, in its order:
 *   0: px_0, 0...255
 *   1: px_1, 0...255
 *   2: px_2, 0...255
 *   3: px_3, 0...255
 *   4: px_4, 0...255
 *   5: px_5, 0...255
 *   6: px_6, 0...255
 *   7: px_7, 0...255
 *   8: px_8, 0...255
 *   9: px_9, 0...255
 *   10: px_10, 0...255
 *   11: px_11, 0...255
 */
typedef long long u1;
typedef long long u2;
typedef long long u3;
typedef long long u4;
typedef long long u8;
typedef _Bool bit;

/* the class index: 0 = 0, 1 = 1 */
int classify(const long long *positions)
{
  const u8 x0 = positions[0];
  const u8 x5 = positions[5];
  const u8 x9 = positions[9];
  (void)positions;
  const u1 n1 = (x5 >= 128) ? 1 : 0;
  const u1 n3 = (x9 >= 10) ? 0 : 1;
  const u1 n0 = (x0 >= 3) ? n3 : n1;
  return n0;
}

/* 1 where the input lies in the region and satisfies the query robust */
int query_robust(const long long *positions)
{
  static const long long low[12] = {3, 0, 254, 7, 7, 127, 100, 0, 0, 9, 39, 49};
  static const long long high[12] = {4, 2, 256, 8, 10, 130, 101, 2, 3, 10, 42, 52};
  for (int i = 0; i < 12; i++)
    if (positions[i] < low[i] || positions[i] >= high[i])
      return 0;
  const u1 x1 = positions[1] - low[1]; /* px_1: position - 0, below 2 */
  const u1 x2 = positions[2] - low[2]; /* px_2: position - 254, below 2 */
  const u2 x4 = positions[4] - low[4]; /* px_4: position - 7, below 3 */
  const u2 x5 = positions[5] - low[5]; /* px_5: position - 127, below 3 */
  const u1 x7 = positions[7] - low[7]; /* px_7: position - 0, below 2 */
  const u2 x10 = positions[10] - low[10]; /* px_10: position - 39, below 3 */
  const u2 x11 = positions[11] - low[11]; /* px_11: position - 49, below 3 */

  /* the points of a box whose weighted l1 distance from the centre is at most 3 */
  const bit b0 = !x2;
  const bit b1 = x4 != 1;
  const bit b2 = x5 != 1;
  const bit b3 = x10 != 1;
  const bit b4 = x11 != 1;
  const u3 v5 = 2 * x1 + b0 + 3 * b1;
  const u2 v6 = b2 + x7;
  const u2 v7 = 2 * b3 + b4;
  const u3 v8 = v6 + v7;
  const u4 v9 = v5 + v8;
  if (!(v9 < 4))
    return 0;

  return 0;
}

/* 1 where the input lies in the region and satisfies the query fragile */
int query_fragile(const long long *positions)
{
  static const long long low[12] = {3, 0, 254, 7, 7, 127, 100, 0, 0, 9, 39, 49};
  static const long long high[12] = {4, 2, 256, 8, 10, 130, 101, 2, 3, 10, 42, 52};
  for (int i = 0; i < 12; i++)
    if (positions[i] < low[i] || positions[i] >= high[i])
      return 0;
  const u1 x1 = positions[1] - low[1]; /* px_1: position - 0, below 2 */
  const u1 x2 = positions[2] - low[2]; /* px_2: position - 254, below 2 */
  const u2 x4 = positions[4] - low[4]; /* px_4: position - 7, below 3 */
  const u2 x5 = positions[5] - low[5]; /* px_5: position - 127, below 3 */
  const u1 x7 = positions[7] - low[7]; /* px_7: position - 0, below 2 */
  const u2 x10 = positions[10] - low[10]; /* px_10: position - 39, below 3 */
  const u2 x11 = positions[11] - low[11]; /* px_11: position - 49, below 3 */

  /* the points of a box whose weighted l1 distance from the centre is at most 3 */
  const bit b0 = !x2;
  const bit b1 = x4 != 1;
  const bit b2 = x5 != 1;
  const bit b3 = x10 != 1;
  const bit b4 = x11 != 1;
  const u3 v5 = 2 * x1 + b0 + 3 * b1;
  const u2 v6 = b2 + x7;
  const u2 v7 = 2 * b3 + b4;
  const u3 v8 = v6 + v7;
  const u4 v9 = v5 + v8;
  if (!(v9 < 4))
    return 0;

  return 1;
}
