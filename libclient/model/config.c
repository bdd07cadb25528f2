/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "mm/abi.h"
#include "libclient/model/text.h"

#define CONFIG_BYTES_MAX (1 << 20)

static int config_check_strings(const json_t *root, const char *name, struct mm_why *why)
{
	const json_t *type = json_object_get(root, "model_type");
	const json_t *architectures = json_object_get(root, "architectures");
	const json_t *value;
	size_t i;

	if (type && !json_is_string(type))
		return mm_refuse(why, -EBADMSG, "%s: model_type is not a string", name);
	if (!architectures || json_is_null(architectures))
		return 0;
	if (!json_is_array(architectures))
		return mm_refuse(why, -EBADMSG, "%s: architectures is not an array of strings",
				 name);
	json_array_foreach(architectures, i, value)
		if (!json_is_string(value))
			return mm_refuse(why, -EBADMSG, "%s: architectures[%zu] is not a string",
					 name, i);
	return 0;
}

int mm_model_config_parse(const char *json, size_t bytes, const char *name,
			  struct mm_model_config *ret_config, struct mm_why *why)
{
	mm_cleanup(mm_json_done) json_t *root = NULL;
	const json_t *layers;
	char err[sizeof(why->text)];
	uint64_t number;
	int r;

	r = mm_json_parse(json, bytes, &root, err, sizeof(err));
	if (r < 0)
		return mm_refuse(why, r, "%s: %s", name, err);
	if (!json_is_object(root))
		return mm_refuse(why, -EBADMSG, "%s: not a JSON object", name);
	r = config_check_strings(root, name, why);
	if (r < 0)
		return r;
	layers = json_object_get(root, "num_hidden_layers");
	if (!mm_json_is_whole(layers, 1, INT64_MAX, &number))
		return mm_refuse(why, -EBADMSG,
				 "%s: num_hidden_layers is missing or not an integer > 0", name);
	if (number > MM_LAYERS_MAX)
		return mm_refuse(why, -ENOTSUP,
				 "%s: num_hidden_layers is %" PRIu64 ", at most %d are served",
				 name, number, MM_LAYERS_MAX);
	ret_config->layers = (uint32_t)number;
	return 0;
}

int mm_model_config_read(int fd, const char *name, struct mm_model_config *ret_config,
			 struct mm_why *why)
{
	mm_cleanup(mm_free_ptr) char *json = NULL;
	size_t bytes;
	char err[sizeof(why->text)];
	int r = mm_text_read(fd, CONFIG_BYTES_MAX, &json, &bytes, err, sizeof(err));

	if (r < 0)
		return mm_refuse(why, r, "%s: %s", name, err);
	return mm_model_config_parse(json, bytes, name, ret_config, why);
}
