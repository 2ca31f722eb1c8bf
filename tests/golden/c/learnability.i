/* Written by quantify for CBMC; no preprocessor is needed when the file is named *.i.
 *
 * Every execution that meets the assumptions and fails the assertion is one input
 * that lies in the region and satisfies the query. Features without a variable
 * below have no influence: each execution stands for 1 input.
 *
 * query: tp
 * region: a box
 */
typedef unsigned __CPROVER_bitvector[1] u1;
typedef __CPROVER_bool bit;

u1 nondet_u1(void);

int main(void)
{
  const u1 x0 = nondet_u1(); /* r_0_0: position - 0, below 2 */
  const u1 x1 = nondet_u1(); /* r_0_1: position - 0, below 2 */
  const u1 x2 = nondet_u1(); /* r_0_2: position - 0, below 2 */
  const u1 x3 = nondet_u1(); /* r_1_0: position - 0, below 2 */
  const u1 x4 = nondet_u1(); /* r_1_1: position - 0, below 2 */
  const u1 x5 = nondet_u1(); /* r_1_2: position - 0, below 2 */
  const u1 x6 = nondet_u1(); /* r_2_0: position - 0, below 2 */
  const u1 x7 = nondet_u1(); /* r_2_1: position - 0, below 2 */
  const u1 x8 = nondet_u1(); /* r_2_2: position - 0, below 2 */

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

  __CPROVER_assert(!(p0 && n0), "tp");
  return 0;
}
