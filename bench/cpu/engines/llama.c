/* llama.cpp behind four functions of plain types; compiled against the headers of the version that was built. */
#include "llama.h"

static struct llama_model *model;
static struct llama_context *context;

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
	(void)level;
	(void)text;
	(void)data;
}

/* A model and room for so many tokens; 0 if both are there. */
int bench_load(const char *path, int threads, int tokens)
{
	llama_log_set(quiet, 0);
	llama_backend_init();
	model = llama_model_load_from_file(path, llama_model_default_params());
	if (!model)
		return 1;
	struct llama_context_params params = llama_context_default_params();
	params.n_ctx = (uint32_t)tokens;
	params.n_batch = params.n_ubatch = (uint32_t)tokens;
	params.n_threads = params.n_threads_batch = threads;
	context = llama_init_from_model(model, params);
	return context ? 0 : 2;
}

/* Forgets what comes at and after a position, and reads tokens there; 0 if that succeeded. */
int bench_read(int32_t *tokens, int count, int position)
{
	if (!llama_memory_seq_rm(llama_get_memory(context), 0, position, -1))
		return 3;
	return llama_decode(context, llama_batch_get_one(tokens, count));
}

/* What comes after the last token that was read. */
const float *bench_logits(void)
{
	return llama_get_logits_ith(context, -1);
}
