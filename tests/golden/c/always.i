/* Written by quantify for CBMC; no preprocessor is needed when the file is named *.i.
 *
 * Every execution that meets the assumptions and fails the assertion is one input
 * that lies in the region and satisfies the query. Features without a variable
 * below have no influence: each execution stands for 512 inputs.
 *
 * query: all
 * region: a box
 */
typedef __CPROVER_bool bit;

int main(void)
{

  __CPROVER_assert(!(1), "all");
  return 0;
}
