// SPDX-License-Identifier: MIT

/// A bounded queue of values from callbacks to one task.
public final class Mailbox<Element> {
  private let bound: Int
  private let waiter = Waiter()
  private var elements: [Element] = []
  private var isFinished = false

  public init(bound: Int) { self.bound = bound }

  public var count: Int { elements.count }

  /// Adds a value. False: the mailbox is full or finished, and the value was not taken.
  public func put(_ element: Element) -> Bool {
    guard !isFinished, elements.count < bound else { return false }
    elements.append(element)
    waiter.resume()
    return true
  }

  /// Ends the mailbox: `next` returns the remaining values, and then `nil`.
  public func finish() {
    isFinished = true
    waiter.resume()
  }

  /// The next value; `nil`: finished. Throws when the task is cancelled.
  public func next() async throws(CancellationError) -> Element? {
    while true {
      if !elements.isEmpty { return elements.removeFirst() }
      if isFinished { return nil }
      try await waiter.wait()
    }
  }
}
