// SPDX-License-Identifier: MIT

import EventLoop

/// Runs another program to its end, for a command line.
public enum Subprocess {
  /// Pause between two calls of `mayGoOn`.
  private static let pause: Duration = .milliseconds(100)
  /// Most bytes of its output, and of its errors.
  private static let maxOutput = 64 << 20

  /// Blocks until the program has ended. It calls `mayGoOn` again and again; `false` ends the program, and the result is `nil`. Throws `SystemError`
  /// if it cannot be started.
  public static func run(
    _ arguments: [String], environment: [String: String], while mayGoOn: @escaping () -> Bool = { true }
  ) throws -> ChildProcess.Exit? {
    let loop = EventLoop()
    var result: Result<ChildProcess.Exit?, any Error> = .success(nil)
    let program = loop.begin {
      do {
        result = .success(
          try await ChildProcess.run(
            arguments, environment: environment, input: [], limit: .seconds(30 * 86_400), maxOutput: maxOutput, on: loop
          ))
      } catch is CancellationError {
        result = .success(nil)
      } catch {
        result = .failure(error)
      }
      loop.stop()
    }
    let watch = loop.begin {
      // `try?`: cancelled when the program has ended.
      while (try? await loop.sleep(for: pause)) != nil { if !mayGoOn() { program.cancel() } }
    }
    loop.run()
    watch.cancel()
    loop.turn(wait: false)
    return try result.get()
  }
}
