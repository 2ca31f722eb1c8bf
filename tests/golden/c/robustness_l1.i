/* Written by quantify for CBMC; no preprocessor is needed when the file is named *.i.
 *
 * Every execution that meets the assumptions and fails the assertion is one input
 * that lies in the region and satisfies the query. Features without a variable
 * below have no influence: each execution stands for 3 inputs.
 *
 * query: robust
 * region: the points of a box whose weighted l1 distance from the centre is at most 3
 */
typedef unsigned __CPROVER_bitvector[1] u1;
typedef unsigned __CPROVER_bitvector[2] u2;
typedef unsigned __CPROVER_bitvector[3] u3;
typedef unsigned __CPROVER_bitvector[4] u4;
typedef __CPROVER_bool bit;

u1 nondet_u1(void);
u2 nondet_u2(void);

int main(void)
{
  const u1 x1 = nondet_u1(); /* px_1: position - 0, below 2 */
  const u1 x2 = nondet_u1(); /* px_2: position - 254, below 2 */
  const u2 x4 = nondet_u2(); /* px_4: position - 7, below 3 */
  __CPROVER_assume(x4 < 3);
  const u2 x5 = nondet_u2(); /* px_5: position - 127, below 3 */
  __CPROVER_assume(x5 < 3);
  const u1 x7 = nondet_u1(); /* px_7: position - 0, below 2 */
  const u2 x10 = nondet_u2(); /* px_10: position - 39, below 3 */
  __CPROVER_assume(x10 < 3);
  const u2 x11 = nondet_u2(); /* px_11: position - 49, below 3 */
  __CPROVER_assume(x11 < 3);

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
  __CPROVER_assume(v9 < 4);

  __CPROVER_assert(!(0), "robust");
  return 0;
}
