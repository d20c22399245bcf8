/* One process with two frameworks that do not know each other and both load libdsc: they share one world.
 *   dscrun -n 4 -- two_frameworks FIRST_PLUGIN SECOND_PLUGIN */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      exit(EXIT_FAILURE);                                                      \
    }                                                                          \
  } while (0)

struct framework {
  void* plugin;
  int (*join)(struct ranks*);
  int (*average)(const struct ranks*, double*);
  int (*leave)(struct ranks*);
  struct ranks ranks;
};

static void resolve(void* plugin, const char* name, void* function) {
  void* const address = dlsym(plugin, name);
  EXPECT(address != NULL);
  memcpy(function, &address, sizeof address);
}

static void load(struct framework* framework, const char* file) {
  memset(framework, 0, sizeof *framework);
  framework->plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  EXPECT(framework->plugin != NULL);
  resolve(framework->plugin, "ranks_join", &framework->join);
  resolve(framework->plugin, "ranks_average", &framework->average);
  resolve(framework->plugin, "ranks_leave", &framework->leave);
}

/* The second framework uses the world of the first one, through the same copy of the library. */
static void share(struct framework* first, struct framework* second) {
  EXPECT(first->join(&first->ranks) && first->ranks.owns_world);
  EXPECT(second->join(&second->ranks) && !second->ranks.owns_world);
  EXPECT(first->ranks.dsc.all_reduce == second->ranks.dsc.all_reduce);
  EXPECT(first->ranks.rank == second->ranks.rank && first->ranks.size == second->ranks.size);
}

static void* work(void* argument) {
  const struct framework* const framework = argument;
  for (int step = 0; step < 100; step++) {
    double value = framework->ranks.rank + step;
    EXPECT(framework->average(&framework->ranks, &value));
    EXPECT(value == (framework->ranks.size - 1) / 2.0 + step);
  }
  return NULL;
}

/* Each has its own group, so they may work on two threads at the same time, each rank in its own order. */
static void work_at_the_same_time(struct framework* first, struct framework* second) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, work, first) == 0);
  work(second);
  EXPECT(pthread_join(thread, NULL) == 0);
}

/* Other options than those of the world are refused, because they would not hold. */
static void ask_for_another_world(const struct libdsc* dsc) {
  dsc_result_t (*options_init)(dsc_init_options_t*, size_t);
  void* const library = dlopen(getenv("DSC_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  EXPECT(library != NULL);
  resolve(library, "dsc_init_options_init", &options_init);
  dsc_init_options_t options;
  dsc_comm_t* world = NULL;
  EXPECT(options_init(&options, sizeof options) == DSC_OK);
  options.timeout_ms = 12345;
  EXPECT(dsc->init_distributed(&options, &world) == DSC_ERR_STATE && world == NULL);
  EXPECT(strstr(dsc->last_error_message(), "timeout_ms"));
  EXPECT(dlclose(library) == 0);
}

/* The library does not count its users: one dsc_finalize() ends the world of all. Later calls are errors. */
static void end(struct framework* first, struct framework* second) {
  const struct libdsc* const dsc = &second->ranks.dsc;
  double value = 1;
  EXPECT(dsc->finalize() == DSC_OK);
  EXPECT(!first->average(&first->ranks, &value) && !second->average(&second->ranks, &value));
  EXPECT(dsc->all_reduce(first->ranks.group, &value, &value, 1, DSC_DTYPE_F64, DSC_OP_SUM, NULL, NULL) ==
         DSC_ERR_STATE);
  EXPECT(dsc->finalize() == DSC_ERR_STATE);
}

int main(int argc, char** argv) {
  struct framework first, second;
  if (argc != 3) return 2;
  load(&first, argv[1]);
  load(&second, argv[2]);
  share(&first, &second);
  work_at_the_same_time(&first, &second);
  ask_for_another_world(&second.ranks.dsc);
  end(&first, &second);

  /* libdsc stays in the process after both frameworks were unloaded, and a new world can be created. */
  EXPECT(dlclose(first.plugin) == 0 && dlclose(second.plugin) == 0);
  load(&first, argv[1]);
  load(&second, argv[2]);
  share(&second, &first);
  EXPECT(first.leave(&first.ranks));
  work(&second); /* the first one has not ended the world, because it has not created it */
  EXPECT(second.leave(&second.ranks));
  puts("two frameworks share one world");
  return EXIT_SUCCESS;
}
