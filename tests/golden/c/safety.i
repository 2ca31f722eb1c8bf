/* Written by quantify for CBMC; no preprocessor is needed when the file is named *.i.
 *
 * Every execution that meets the assumptions and fails the assertion is one input
 * that lies in the region and satisfies the query. Features without a variable
 * below have no influence: each execution stands for 12 inputs.
 *
 * query: violated * /
 * region: a box
 */
typedef unsigned __CPROVER_bitvector[2] u2;
typedef unsigned __CPROVER_bitvector[3] u3;
typedef unsigned __CPROVER_bitvector[4] u4;
typedef __CPROVER_bitvector[4] s4;
typedef unsigned __CPROVER_bitvector[5] u5;
typedef unsigned __CPROVER_bitvector[6] u6;
typedef __CPROVER_bitvector[6] s6;
typedef __CPROVER_bool bit;

u2 nondet_u2(void);
u4 nondet_u4(void);

int main(void)
{
  const u4 x0 = nondet_u4(); /* rho * / \u03c1: position - 0, below 11 */
  __CPROVER_assume(x0 < 11);
  const u4 x1 = nondet_u4(); /* theta\x0aspeed: position - 0, below 9 */
  __CPROVER_assume(x1 < 9);
  const u2 x2 = nondet_u2(); /* colour: position - 0, below 3 */
  __CPROVER_assume(x2 < 3);

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

  __CPROVER_assert(!((x0 >= 2) && (!(n0 && ((v0 <= v1) && (v3 != 2) && (v6 < 20) && (v10 == 2))))), "violated___");
  return 0;
}
