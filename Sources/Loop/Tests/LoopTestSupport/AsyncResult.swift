// SPDX-License-Identifier: MIT

extension Result {
  /// Like the initialiser of the library, for asynchronous work.
  public init(_ work: nonisolated(nonsending) () async throws(Failure) -> Success) async {
    do throws(Failure) { self = .success(try await work()) } catch { self = .failure(error) }
  }
}
