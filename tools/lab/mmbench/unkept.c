/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This stands in mmd-unkept for mm_pool_keep(), which makes the first image of a pool's core. A
 * core without one writes no event down and makes no image (mmd/shell/pool_kept.c). All else is
 * the same objects.
 */
struct mm_pool;

int __wrap_mm_pool_keep(struct mm_pool *pool);

int __wrap_mm_pool_keep(struct mm_pool *pool)
{
	(void)pool;
	return 0;
}
