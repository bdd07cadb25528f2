/* SPDX-License-Identifier: Apache-2.0 */
/* In place of a test of fault points, where there are none. */
#include <stdio.h>

int main(void)
{
	printf("skipped: built without fault points (MM_FAULT_INJECTION)\n");
	return 77;
}
