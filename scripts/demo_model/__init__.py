"""Parts of scripts/build_demo_model: text, tokenizer, target, draft, prompts, packaging, measuring."""
