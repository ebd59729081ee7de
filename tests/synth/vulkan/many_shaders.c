/* Compiles many shaders in one process, which is several times as fast as a process for each: reads lines
   "shader name header" and writes headers as glslangValidator --vn does, or SPIR-V where the header is called *.spv.
   Needs glslang-dev and spirv-tools. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glslang/Include/glslang_c_interface.h>

const glslang_resource_t *glslang_default_resource(void);

static const char included[] = "#include \"support.glsl\"";

static char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 22);
    if (!file || !text) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    text[fread(text, 1, (1 << 22) - 1, file)] = 0;
    fclose(file);
    return text;
}

/* The text of a shader with what it includes in place. */
static char *whole(const char *path)
{
    char *text = contents(path), *line = strstr(text, included);
    if (!line) return text;
    char other[4096];
    const char *end = strrchr(path, '/');
    snprintf(other, sizeof other, "%.*s/support.glsl", (int)(end ? end - path : 1), end ? path : ".");
    char *support = contents(other);
    char *result = calloc(1, strlen(text) + strlen(support) + 1);
    memcpy(result, text, (size_t)(line - text));
    strcat(strcat(result, support), line + sizeof included - 1);
    free(text), free(support);
    return result;
}

static int compiled(const char *path, const char *name, const char *header)
{
    char *text = whole(path);
    const glslang_input_t input = {
        .language = GLSLANG_SOURCE_GLSL, .stage = GLSLANG_STAGE_COMPUTE, .client = GLSLANG_CLIENT_VULKAN,
        .client_version = GLSLANG_TARGET_VULKAN_1_2, .target_language = GLSLANG_TARGET_SPV,
        .target_language_version = GLSLANG_TARGET_SPV_1_5, .code = text, .default_version = 100,
        .default_profile = GLSLANG_NO_PROFILE,
        .messages = GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT,
        .resource = glslang_default_resource(),
    };
    glslang_shader_t *shader = glslang_shader_create(&input);
    glslang_program_t *program = glslang_program_create();
    const char *wrong = NULL;
    if (!glslang_shader_preprocess(shader, &input) || !glslang_shader_parse(shader, &input))
        wrong = glslang_shader_get_info_log(shader);
    if (!wrong) {
        glslang_program_add_shader(program, shader);
        if (!glslang_program_link(program, input.messages)) wrong = glslang_program_get_info_log(program);
    }
    if (wrong) {
        fprintf(stderr, "%s: %s\n", path, wrong);
        return 1;
    }
    glslang_program_SPIRV_generate(program, GLSLANG_STAGE_COMPUTE);
    const char *end = strrchr(header, '.');
    const bool is_binary = end && strcmp(end, ".spv") == 0;
    FILE *file = fopen(header, is_binary ? "wb" : "w");
    if (!file) return 2;
    const unsigned int *words = glslang_program_SPIRV_get_ptr(program);
    const size_t count = glslang_program_SPIRV_get_size(program);
    if (is_binary) {
        fwrite(words, sizeof *words, count, file);
    } else {
        fprintf(file, "const uint32_t %s[] = {", name);
        for (size_t i = 0; i < count; i++) fprintf(file, "0x%08x,", words[i]);
        fprintf(file, "};\n");
    }
    glslang_program_delete(program);
    glslang_shader_delete(shader);
    free(text);
    return fclose(file) != 0;
}

int main(void)
{
    static char path[4096], name[4096], header[4096];
    glslang_initialize_process();
    while (scanf("%4095s %4095s %4095s", path, name, header) == 3) {
        const int status = compiled(path, name, header);
        if (status) return status;
    }
    glslang_finalize_process();
    return 0;
}
