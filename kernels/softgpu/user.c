/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/user.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/graph.h"
#include "libclient/base/base.h"
#include "libclient/support/lock.h"

static struct mm_lock users_lock = MM_LOCK_INIT;

struct sg_user {
	struct sg_object object;                  /* published while count is not 0 */
	uint64_t count MM_GUARDED_BY(users_lock); /* all references, the graphs' included */
	CUhostFn destroy;
	void *arg;
	struct sg_user *next MM_GUARDED_BY(users_lock); /* next in dead_users */
};

static pthread_cond_t user_died = PTHREAD_COND_INITIALIZER;
/* The thread calls their functions. */
static struct sg_user *dead_users MM_GUARDED_BY(users_lock);
static bool has_thread; /* guarded by users_lock */

static void destroy_user(struct sg_object *object)
{
	free(object);
}

/* ---- The thread ---- */

static void *destructors_run(void *unused)
{
	struct sg_user *user;

	(void)unused;
	prctl(PR_SET_NAME, "softgpu-user");
	mm_lock_take(&users_lock);
	for (;;) {
		while (!dead_users)
			mm_lock_wait(&users_lock, &user_died);
		user = dead_users;
		dead_users = user->next;
		mm_lock_give(&users_lock);
		user->destroy(user->arg);
		sg_object_put(&user->object);
		mm_lock_take(&users_lock);
	}
	return NULL;
}

/* The thread blocks all signals: they are for the program's threads. */
static int destructors_start_thread(void) MM_REQUIRES(users_lock)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int err;

	if (has_thread)
		return 0;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, destructors_run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	has_thread = err == 0;
	return err;
}

/* ---- References ---- */

/* @user has at least @count references. Dropping the last retracts the handle. */
static void user_drop_references(struct sg_user *user, uint64_t count) MM_REQUIRES(users_lock)
{
	struct sg_user **end = &dead_users;

	user->count -= count;
	if (user->count)
		return;
	sg_object_retract(user, SG_USER);
	while (*end)
		end = &(*end)->next;
	*end = user;
	pthread_cond_signal(&user_died);
}

/* Return: false, the set holds fewer. */
static bool set_take(struct sg_users *users, struct sg_user *user, uint64_t count)
	MM_REQUIRES(users_lock)
{
	size_t i = 0;

	while (i < users->n && users->items[i].user != user)
		i++;
	if (i == users->n || users->items[i].count < count)
		return false;
	users->items[i].count -= count;
	if (!users->items[i].count)
		users->items[i] = users->items[--users->n];
	return true;
}

/* Makes room for one more entry. Return: false if there is no memory. */
static bool set_grow(struct sg_users *users)
{
	struct sg_user_held *items;

	items = realloc(users->items, (users->n + 1) * sizeof(*items));
	if (items)
		users->items = items;
	return items != NULL;
}

/* The references are counted already. */
static bool set_give(struct sg_users *users, struct sg_user *user, uint64_t count)
	MM_REQUIRES(users_lock)
{
	for (size_t i = 0; i < users->n; i++)
		if (users->items[i].user == user) {
			users->items[i].count += count;
			return true;
		}
	if (!set_grow(users))
		return false;
	users->items[users->n++] = (struct sg_user_held){ user, count };
	return true;
}

int sg_users_copy(const struct sg_users *from, struct sg_users *ret)
{
	*ret = (struct sg_users){ 0 };
	if (!from->n)
		return 0;
	ret->items = calloc(from->n, sizeof(*ret->items));
	if (!ret->items)
		return -ENOMEM;
	mm_lock_take(&users_lock);
	for (; ret->n < from->n; ret->n++) {
		ret->items[ret->n] = (struct sg_user_held){ from->items[ret->n].user, 1 };
		ret->items[ret->n].user->count++;
	}
	mm_lock_give(&users_lock);
	return 0;
}

void sg_users_done(struct sg_users *users)
{
	mm_lock_take(&users_lock);
	for (size_t i = 0; i < users->n; i++)
		user_drop_references(users->items[i].user, users->items[i].count);
	mm_lock_give(&users_lock);
	free(users->items);
	*users = (struct sg_users){ 0 };
}

/* ---- Entry points ---- */

static bool count_is_valid(unsigned int count)
{
	return count && count <= INT_MAX;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *ret, void *arg, CUhostFn destroy,
				    unsigned int count, unsigned int flags)
{
	struct sg_user *user;
	int err;

	SG_ENTER();
	if (!ret || !destroy || !count_is_valid(count) ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	user = calloc(1, sizeof(*user));
	if (!user)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mm_lock_take(&users_lock);
	user->count = count;
	err = destructors_start_thread();
	mm_lock_give(&users_lock);
	if (err) {
		free(user);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sg_object_init(&user->object, SG_USER, destroy_user);
	user->destroy = destroy;
	user->arg = arg;
	sg_object_publish(&user->object);
	*ret = (CUuserObject)user;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
	struct sg_user *user;

	SG_ENTER();
	user = count_is_valid(count) ? sg_object_get(handle, SG_USER) : NULL;
	if (!user)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&users_lock);
	user->count += user->count ? count : 0;
	mm_lock_give(&users_lock);
	sg_object_put(&user->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	struct sg_user *user;

	SG_ENTER();
	user = count_is_valid(count) ? sg_object_get(handle, SG_USER) : NULL;
	if (!user)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&users_lock);
	if (user->count >= count) {
		user_drop_references(user, count);
		res = CUDA_SUCCESS;
	}
	mm_lock_give(&users_lock);
	sg_object_put(&user->object);
	return res;
}

/* Returns references to both. Return: false, one of them does not exist. */
static bool graph_and_user_get(CUgraph graph_handle, CUuserObject handle,
			       struct sg_graph **ret_graph, struct sg_user **ret_user)
{
	*ret_graph = sg_object_get(graph_handle, SG_GRAPH);
	*ret_user = sg_object_get(handle, SG_USER);
	if (*ret_graph && *ret_user)
		return true;
	if (*ret_graph)
		sg_object_put(&(*ret_graph)->object);
	if (*ret_user)
		sg_object_put(&(*ret_user)->object);
	return false;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle,
					 unsigned int count, unsigned int flags)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	struct sg_graph *graph;
	struct sg_user *user;

	SG_ENTER();
	if (!count_is_valid(count) || flags > CU_GRAPH_USER_OBJECT_MOVE ||
	    !graph_and_user_get(graph_handle, handle, &graph, &user))
		return CUDA_ERROR_INVALID_VALUE;
	sg_graph_lock();
	mm_lock_take(&users_lock);
	if (user->count >= (flags ? count : 1)) {
		res = set_give(&graph->users, user, count) ? CUDA_SUCCESS
							   : CUDA_ERROR_OUT_OF_MEMORY;
		if (!res && !flags)
			user->count += count;
	}
	mm_lock_give(&users_lock);
	sg_graph_unlock();
	sg_object_put(&user->object);
	sg_object_put(&graph->object);
	return res;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle,
					  unsigned int count)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	struct sg_graph *graph;
	struct sg_user *user;

	SG_ENTER();
	if (!count_is_valid(count) || !graph_and_user_get(graph_handle, handle, &graph, &user))
		return CUDA_ERROR_INVALID_VALUE;
	sg_graph_lock();
	mm_lock_take(&users_lock);
	if (set_take(&graph->users, user, count)) {
		user_drop_references(user, count);
		res = CUDA_SUCCESS;
	}
	mm_lock_give(&users_lock);
	sg_graph_unlock();
	sg_object_put(&user->object);
	sg_object_put(&graph->object);
	return res;
}
