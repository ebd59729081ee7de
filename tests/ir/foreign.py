"""Documents as other OpenInfer tools write them: no version, sizes, attributes, scopes or constraints; random uuids."""

import json
from typing import Any

MINIMAL = """
{
  "vars": {
    "a": {"name": "a", "kind": "Volatile", "dtype": "F32", "dims": ["B"], "init": null, "ref_name": null,
          "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []},
    "x": {"name": "x", "kind": "Dynamic", "dtype": "F32", "dims": ["B"], "init": null, "ref_name": null,
          "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []},
    "y": {"name": "y", "kind": "Volatile", "dtype": "F32", "dims": ["B"], "init": {"F32": 5.0}, "ref_name": null,
          "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []}
  },
  "blocks": {
    "entry": {
      "name": "entry",
      "nodes": [
        {"index": 0, "uuid": "3f0c9a52-5f3e-4c0e-9a55-0a3c0c5f7a10",
         "kind": {"Assign": {"name": "t0", "dtype": "F32", "dims": ["B"]}}},
        {"index": 1, "uuid": "b1a3c7de-92c4-4f3b-8a6e-2f9f3d7a4e21",
         "kind": {"Op": {"op": "add", "inputs": ["x", "a"], "attrs": {"items": []}, "output": "t0"}}},
        {"index": 2, "uuid": "0d5e8f7a-1c2b-4a3d-9e4f-5a6b7c8d9e32",
         "kind": {"Op": {"op": "mul", "inputs": ["y", "t0"], "attrs": {"items": []}, "output": "y"}}},
        {"index": 3, "uuid": "7c9e6679-7425-40de-944b-e07fc1f90a43", "kind": "Return"}
      ]
    }
  },
  "next_index": 4
}
"""

LAYERS = """
{
  "vars": {
    "h": {"name": "h", "kind": "Volatile", "dtype": "BF16", "dims": ["B", "3*D"], "init": {"BF16": "-inf"},
          "ref_name": "model.h", "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []},
    "W": {"name": "W", "kind": "Constant", "dtype": "BF16", "dims": ["D", "D"], "init": null, "ref_name": null,
          "pattern": "W.{layer}", "table_indices": ["layer"], "table": false, "auto_dim": [], "fixed": []},
    "on": {"name": "on", "kind": "Dynamic", "dtype": "Bool", "dims": [], "init": null, "ref_name": null,
           "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []}
  },
  "blocks": {
    "entry": {
      "name": "entry",
      "nodes": [
        {"index": 0, "uuid": "c56a4180-65aa-42ec-a945-5fd21dec0538", "kind": {"Loop": {
          "name": "layers", "index": "l", "start": "0", "end": "num_layers", "body": [
            {"index": 1, "uuid": "9f1b4c2e-7d3a-4b5c-8e6f-0a1b2c3d4e5f", "kind": {"Op": {
              "op": "matmul", "inputs": ["h", "W[l]"], "output": "h", "attrs": {"items": [
                {"name": "alpha", "value": {"Double": 0.1}}, {"name": "beta", "value": {"Float": 1.0}},
                {"name": "axis", "value": {"Int": -1}}, {"name": "groups", "value": {"UInt": 3}},
                {"name": "wide", "value": {"UInt": 18446744073709551615}},
                {"name": "low", "value": {"Double": "-inf"}}, {"name": "bad", "value": {"Float": "nan"}},
                {"name": "fast", "value": {"Bool": true}}, {"name": "mode", "value": {"Str": "a \\"b\\" \\u00e9"}},
                {"name": "pads", "value": {"IntList": [0, -1, 2]}}, {"name": "w", "value": {"FloatList": [0.5, 2.0]}},
                {"name": "eps", "value": {"Var": "epsilon"}}, {"name": "acc", "value": {"DType": "F32"}},
                {"name": "types", "value": {"DTypeList": ["F32", "I8"]}}]}}}}
          ]}}},
        {"index": 2, "uuid": "16fd2706-8baf-433b-82eb-8c7fada847da", "kind": "Barrier"},
        {"index": 3, "uuid": "886313e1-3b8a-4372-9b90-0c9aee199e5d",
         "kind": {"Branch": {"cond": null, "then_block": "again", "else_block": null}}},
        {"index": 4, "uuid": "6fa459ea-ee8a-4ca4-894e-db77e160355e",
         "kind": {"Branch": {"cond": "on", "then_block": "again", "else_block": "other"}}},
        {"index": 5, "uuid": "a8098c1a-f86e-41da-bd1a-00112444be1e", "kind": "Return"}
      ]
    },
    "again": {"name": "again", "nodes": [
      {"index": 6, "uuid": "f47ac10b-58cc-4372-a567-0e02b2c3d479", "kind": {"Transfer": {"src": "h", "dst": "h"}}},
      {"index": 7, "uuid": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "kind": "Return"}]},
    "other": {"name": "other", "nodes": [
      {"index": 8, "uuid": "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "kind": "Return"}]}
  },
  "next_index": 9
}
"""

CACHES = """
{
  "vars": {
    "K": {"name": "K", "kind": "Persistent", "dtype": "F16", "dims": ["H"], "init": {"F16": 0.5}, "ref_name": null,
          "pattern": null, "table_indices": ["i", "j"], "table": true, "auto_dim": [], "fixed": [["i", 1024]]},
    "M": {"name": "M", "kind": "Persistent", "dtype": "F32", "dims": ["D", "H"], "init": null, "ref_name": null,
          "pattern": null, "table_indices": ["r", "c"], "table": false, "auto_dim": ["r", "c"],
          "fixed": [["r", 1024], ["c", 256]]},
    "step": {"name": "step", "kind": "Persistent", "dtype": "I32", "dims": [], "init": {"I32": -2147483648},
             "ref_name": null, "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []},
    "v": {"name": "v", "kind": "Volatile", "dtype": "F16", "dims": ["H"], "init": null, "ref_name": null,
          "pattern": null, "table_indices": [], "table": false, "auto_dim": [], "fixed": []}
  },
  "blocks": {
    "entry": {
      "name": "entry",
      "nodes": [
        {"index": 0, "uuid": "21f7f8de-8051-4b89-8680-0195ef798b6a", "kind": {"CacheRead": {"dst": "v", "src": {
          "base": "K", "indices": [{"Single": {"Ident": "step"}}, {"Single": {"Lit": 3}}], "bracketed": true}}}},
        {"index": 1, "uuid": "5a2b9c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d", "kind": {"CacheWrite": {"src": "v", "dst": {
          "base": "K", "bracketed": true, "indices": [{"Slice": {"start": {"Lit": 0}, "end": {"Lit": -3}}},
                                                      {"Slice": {"start": null, "end": {"Ident": "step"}}}]}}}},
        {"index": 2, "uuid": "e4eaaaf2-d142-41b3-9b3e-c0f7e2b8a9d1", "kind": {"CacheRead": {"dst": "v", "src": {
          "base": "M", "indices": [], "bracketed": true}}}},
        {"index": 3, "uuid": "d9428888-122b-41e1-b85c-61cd3cbb3210",
         "kind": {"CacheIncrement": {"target": "step", "amount": 5}}},
        {"index": 4, "uuid": "2c5ea4c0-4067-41e9-8bad-9b1deb4d3b7d",
         "kind": {"CacheDecrement": {"target": "step", "amount": 1}}},
        {"index": 5, "uuid": "7d444840-9dc0-41d1-b245-5ffdce74fad2",
         "kind": {"CacheReset": {"target": {"base": "K", "indices": [], "bracketed": false}}}},
        {"index": 6, "uuid": "e902893a-9d22-4c7e-a7b8-d6e313b71d9f",
         "kind": {"CacheReset": {"target": {"base": "K", "indices": [{"Single": {"Lit": 1}}], "bracketed": true}}}},
        {"index": 7, "uuid": "45745c60-7b1a-41e8-9c9c-2d42b21b1a3e", "kind": "Return"}
      ]
    }
  },
  "next_index": 8
}
"""

HAND_OVER = """
{
  "vars": {
    "x": {"name": "x", "kind": "Dynamic", "dtype": "U8", "dims": ["B"], "init": null, "ref_name": null},
    "s": {"name": "s", "kind": "Persistent", "dtype": "Bool", "dims": [], "init": {"Bool": true}, "ref_name": null}
  },
  "blocks": {
    "entry": {"name": "entry", "nodes": [
      {"index": 0, "uuid": "2fd4e1c6-7a2d-48fc-ad84-9ee1b76e7391", "kind": {"Yield": {"vars": ["x"]}}},
      {"index": 1, "uuid": "de9f2c7f-d25e-4b3a-bad3-e85a0bd17d9b", "kind": {"Await": {"vars": ["x"]}}},
      {"index": 2, "uuid": "da39a3ee-5e6b-4b0d-b255-bfef95601890", "kind": {"Return": {"vars": ["x"]}}}]},
    "worker": {"name": "worker", "nodes": [
      {"index": 3, "uuid": "a9993e36-4706-416a-ba3e-25717850c26c", "kind": {"Await": {"vars": ["x"]}}},
      {"index": 4, "uuid": "84983e44-1c3b-426e-9aae-4aa1f95129e5",
       "kind": {"Op": {"op": "relu", "inputs": ["a=x"], "attrs": {"items": []}, "output": ["x", "s"]}}},
      {"index": 5, "uuid": "34aa973c-d4c4-4aa4-961e-eb2bdbad2731", "kind": {"Yield": {"vars": ["x", "s"]}}}]}
  },
  "next_index": 6
}
"""

DOCUMENTS: dict[str, str] = {"minimal": MINIMAL, "layers": LAYERS, "caches": CACHES, "hand_over": HAND_OVER}


def load(name: str) -> Any:
    """A document as plain values."""
    return json.loads(DOCUMENTS[name])
