"""LangChain middleware; each file is one class and its hooks. The classes are on the package's front page."""
