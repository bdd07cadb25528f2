/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock - mutexes whose use Clang checks, and the annotations by which it does
 *
 * Concept:   -Wthread-safety checks at compile time that what is marked MM_GUARDED_BY(lock) is
 *            accessed only where the lock is held, that a function marked MM_REQUIRES(lock) is
 *            called only there, and that each path gives back what it took. GCC sees none of it.
 *            A lock is a pthread_mutex_t and costs nothing more. A variable at file scope is
 *            guarded by a struct mm_lock at file scope. In C an annotation cannot name a sibling
 *            field; the locks that objects contain are therefore of a kind (MM_LOCK_KIND), and
 *            annotations name the kind.
 * Ownership: the object that contains a lock owns it.
 * Threading: any thread; a lock is not recursive and is given back by the thread that took it.
 * Limits:    the check cannot tell two locks of a kind from each other: a thread may hold one of
 *            each kind. Nor does it follow a lock that is taken under a condition; such a function
 *            is marked MM_NO_THREAD_SAFETY_ANALYSIS, with the reason.
 */
#pragma once

#include <pthread.h>
#include <time.h>

#ifdef __clang__
#define MM_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define MM_THREAD_SAFETY(attribute)
#endif

/* A struct type that can be held; @name is what warnings call it. */
#define MM_CAPABILITY(name) MM_THREAD_SAFETY(capability(name))

/* A field or variable that is accessed only with @lock held. */
#define MM_GUARDED_BY(lock) MM_THREAD_SAFETY(guarded_by(lock))
/*
 * A pointer to an object that is accessed only with @lock held; the pointer itself is not guarded.
 */
#define MM_PT_GUARDED_BY(lock) MM_THREAD_SAFETY(pt_guarded_by(lock))

/* The caller holds the locks. */
#define MM_REQUIRES(...) MM_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/* The caller does not hold the locks: the function takes them. */
#define MM_EXCLUDES(...) MM_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/* The function returns with the locks held. */
#define MM_ACQUIRE(...) MM_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
/* The function gives back locks that the caller holds. */
#define MM_RELEASE(...) MM_THREAD_SAFETY(release_capability(__VA_ARGS__))
/* The function holds the locks if it returned the first argument; the others are the locks. */
#define MM_TRY_ACQUIRE(...) MM_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
/* The function is not checked; a comment gives the reason. */
#define MM_NO_THREAD_SAFETY_ANALYSIS MM_THREAD_SAFETY(no_thread_safety_analysis)

/* The value of a lock with static storage, which is never destroyed. */
#define MM_LOCK_INIT                      \
	{                                 \
		PTHREAD_MUTEX_INITIALIZER \
	}

/*
 * MM_LOCK_KIND(@kind) declares struct @kind, a lock for objects to contain, the name @kind for
 * annotations, and these functions:
 *
 *   @kind_init(lock), @kind_destroy(lock)
 *   @kind_take(lock), @kind_give(lock)
 *   @kind_wait(lock, changed), @kind_wait_until(lock, changed, until)
 *
 * The last two are pthread_cond_wait() and pthread_cond_timedwait() and return what these do: the
 * lock is given back meanwhile, so that all that it guards may have changed.
 */
#define MM_LOCK_KIND(kind)                                                                         \
	struct MM_CAPABILITY("lock") kind {                                                        \
		pthread_mutex_t mutex;                                                             \
	};                                                                                         \
	extern struct kind kind; /* for annotations only: it is never defined */                   \
                                                                                                   \
	__attribute__((unused)) static inline void kind##_init(struct kind *lock)                  \
	{                                                                                          \
		pthread_mutex_init(&lock->mutex, NULL);                                            \
	}                                                                                          \
	__attribute__((unused)) static inline void kind##_destroy(struct kind *lock)               \
	{                                                                                          \
		pthread_mutex_destroy(&lock->mutex);                                               \
	}                                                                                          \
	__attribute__((unused)) static inline void kind##_take(struct kind *lock) MM_ACQUIRE(kind) \
		MM_NO_THREAD_SAFETY_ANALYSIS                                                       \
	{                                                                                          \
		pthread_mutex_lock(&lock->mutex);                                                  \
	}                                                                                          \
	__attribute__((unused)) static inline void kind##_give(struct kind *lock) MM_RELEASE(kind) \
		MM_NO_THREAD_SAFETY_ANALYSIS                                                       \
	{                                                                                          \
		pthread_mutex_unlock(&lock->mutex);                                                \
	}                                                                                          \
	__attribute__((unused)) static inline int kind##_wait(                                     \
		struct kind *lock, pthread_cond_t *changed) MM_REQUIRES(kind)                      \
	{                                                                                          \
		return pthread_cond_wait(changed, &lock->mutex);                                   \
	}                                                                                          \
	__attribute__((unused)) static inline int kind##_wait_until(                               \
		struct kind *lock, pthread_cond_t *changed, const struct timespec *until)          \
		MM_REQUIRES(kind)                                                                  \
	{                                                                                          \
		return pthread_cond_timedwait(changed, &lock->mutex, until);                       \
	}                                                                                          \
	struct kind

/* A lock at file scope, named by itself in annotations; its functions are as for a kind. */
struct MM_CAPABILITY("lock") mm_lock {
	pthread_mutex_t mutex;
};

static inline void mm_lock_take(struct mm_lock *lock) MM_ACQUIRE(lock) MM_NO_THREAD_SAFETY_ANALYSIS
{
	pthread_mutex_lock(&lock->mutex);
}

static inline void mm_lock_give(struct mm_lock *lock) MM_RELEASE(lock) MM_NO_THREAD_SAFETY_ANALYSIS
{
	pthread_mutex_unlock(&lock->mutex);
}

static inline int mm_lock_wait(struct mm_lock *lock, pthread_cond_t *changed) MM_REQUIRES(lock)
{
	return pthread_cond_wait(changed, &lock->mutex);
}
