// SPDX-License-Identifier: MIT

// Tests import a single module besides the tested ones.
@_exported import LinkInMemory
@_exported import LoopTestSupport
@_exported import MeshCoreFixtures
