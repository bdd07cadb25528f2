/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange - one request and its answer, on a connection of the server
 *
 * Concept:    made when the headers of a request are there. What is wrong with them is answered at
 *             once, without the body. When the body is there, the request becomes a job, and the
 *             connection is suspended until there are tokens to write, or all of them. The server
 *             resumes it.
 * Ownership:  an exchange belongs to libmicrohttpd's request, and ends with mm_exchange_end(); its
 *             job outlives it until the engine gives it back.
 * Threading:  the server's thread.
 */
#pragma once

#include <microhttpd.h>

#include "tools/mmserve/http/listen.h"
#include "tools/mmserve/http/metrics.h"
#include "tools/mmserve/http/output.h"
#include "tools/mmserve/http/reply.h"
#include "tools/mmserve/http/server.h"

struct mm_connection {                /* a place of the server's table */
	int fd;                       /* -1: free */
	uint32_t generation;          /* how often the place was taken */
	uint64_t deadline_ns;         /* when it is closed; 0: not for being slow */
	bool hung;                    /* the client has closed its side */
	bool served;                  /* it has had an answer */
	struct mm_exchange *exchange; /* that is open; NULL: none */
};

struct mm_http {
	struct mm_http_opts opts;
	struct mm_listen listen;
	struct MHD_Daemon *daemon;
	pthread_t thread;
	bool started;
	int epoll_fd;
	uint32_t stop; /* shared: written by the caller's thread, release */
	time_t created;
	struct mm_connection *connections; /* [connections_max] */
	uint32_t n_connections;
	uint64_t checked_ns;         /* when deadlines were looked at */
	struct mm_exchange *waiting; /* exchanges with a job */
	struct mm_job *left;         /* jobs without an exchange, by next_left */
	uint32_t open_jobs;
	uint64_t bodies_bytes; /* of all bodies that are being received */
	uint64_t ids;          /* of answers so far */
	uint64_t id_salt;
	struct mm_http_counts counts;
};

struct mm_exchange {
	struct mm_http *http;
	struct mm_connection *connection;
	struct MHD_Connection *mhd;
	struct mm_exchange *next, *before; /* in waiting */
	const struct mm_route *route;
	bool answered; /* a response was queued */
	bool suspended;
	struct mm_buffer body;
	uint64_t dropped; /* bytes of a body that is too long */
	struct mm_ask ask;
	struct mm_job *job;
	bool job_over; /* that the engine gave back, as seen by the server */
	struct mm_reply reply;
	struct mm_output output;
	uint32_t taken;   /* tokens that were made text of */
	uint32_t written; /* tokens of events that were written */
	size_t characters;
	bool stopped;         /* by a stop string: the job was cancelled for that */
	bool began, finished; /* the first and the last event are written */
	struct mm_buffer out; /* events that are to be sent */
};

/* libmicrohttpd's callbacks: a request, in parts; and its end. */
enum MHD_Result mm_exchange_handle(void *http, struct MHD_Connection *mhd, const char *url,
				   const char *method, const char *version, const char *data,
				   size_t *data_bytes, void **context);
void mm_exchange_end(void *http, struct MHD_Connection *mhd, void **context,
		     enum MHD_RequestTerminationCode how);

/* Resumes an exchange whose job has news, or whose client is gone. */
void mm_exchange_advance(struct mm_exchange *x);

/* Counts a job that the engine gave back. */
void mm_exchange_count(struct mm_http *http, const struct mm_job *job);

/* Frees a job that the engine gave back. */
void mm_exchange_free_job(struct mm_http *http, struct mm_job *job);
