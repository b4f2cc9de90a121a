--- Neovim's own inline completion (0.12), made safe to accept while typing.
---
--- Neovim 0.12 keeps showing an item while the user types on, and accepting it then replaces the range that it was made for:
--- the characters typed since stay behind (neovim #36529). It never cancels a request, keeps the old item when the answer is
--- `null`, and accepts only after the keys that are typed already. So every request goes through here: the one before is
--- cancelled, the line is noted, and what is accepted is fitted to the line as it is now, at once, or refused. It also waits 200 ms
--- after each key before it asks: once it has asked in a buffer, this asks sooner, and the answer goes the same way.
local M = {}

local leaving = require('foretype.leaving')
local offer = require('foretype.offer')

local METHOD = 'textDocument/inlineCompletion'
local marks = vim.api.nvim_create_namespace('nvim.lsp.inline_completion')

local QUIET_MS = 30 -- keeps a burst of keys from becoming a burst of messages
local INVOKED, AUTOMATIC = 1, 2 -- the protocol's kinds of question: the user asks, or typing does

--- By buffer: the newest question, the one that the shown item answers, Neovim's own handler of answers, and where was asked last.
local live, shown, handlers, last = {}, {}, {}, {}

local quiet = vim.uv.new_timer()
local ours = false -- the question that is on its way is this plugin's, not one of Neovim's timer

--- The question whose item is on the screen and fits the text, or nil.
local function offered(bufnr)
  local on_screen = #vim.api.nvim_buf_get_extmarks(bufnr, marks, 0, -1, { limit = 1 }) > 0
  return on_screen and offer.fitted(shown[bufnr]) and shown[bufnr] or nil
end

local function cancel(bufnr)
  local asked = live[bufnr]
  live[bufnr] = nil
  local waiting = asked and asked.client.requests[asked.id]
  if waiting and waiting.type == 'pending' then -- leaving insert mode cancels by itself
    asked.client:cancel_request(asked.id)
  end
end

local function ask(bufnr, client, kind)
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = kind }
  ours = true
  client:request(METHOD, params, handlers[bufnr], bufnr)
  ours = false
end

--- What Neovim does on InsertLeave alone: it takes what it shows off the screen, and forgets it.
local function abort(bufnr)
  for _, one in ipairs(vim.api.nvim_get_autocmds({ event = 'InsertLeave', buffer = bufnr })) do
    if (one.group_name or ''):find('inline_completion', 1, true) then
      vim.api.nvim_exec_autocmds('InsertLeave', { group = one.group, buffer = bufnr, modeline = false })
    end
  end
end

--- The client whose answers Neovim shows in this buffer, the current one; nil before Neovim has asked by itself.
local function client_of(bufnr)
  return handlers[bufnr] and vim.lsp.get_clients({ bufnr = bufnr, name = 'foretype' })[1]
end

--- Ask when no key comes for a moment, which Neovim itself does much later.
local function ask_soon(bufnr)
  quiet:start(QUIET_MS, 0, vim.schedule_wrap(function()
    if vim.api.nvim_get_current_buf() ~= bufnr or not leaving.typing() then
      return
    end
    local client = client_of(bufnr)
    if client then
      ask(bufnr, client, AUTOMATIC)
    end
  end))
end

local function watch(client)
  local request = client.request
  client.request = function(self, method, params, handler, bufnr)
    if method ~= METHOD then
      return request(self, method, params, handler, bufnr)
    end
    bufnr = vim._resolve_bufnr(bufnr)
    handlers[bufnr] = handler
    if not leaving.typing() then
      return false -- Neovim's timer of a key before Ctrl+C
    end
    local here = { vim.api.nvim_buf_get_changedtick(bufnr), params.position.line, params.position.character }
    if not ours and vim.deep_equal(here, last[bufnr]) then
      return false -- Neovim's timer of the last key, when the same was asked here
    end
    last[bufnr] = here
    cancel(bufnr)
    local asked = offer.asked(bufnr, params.position.line, self)
    local sent, id = request(self, method, params, function(err, result, ctx)
      if live[bufnr] ~= asked then
        return -- a newer request is on its way: what is shown stays until its answer
      end
      live[bufnr] = nil
      local items = not err and result and (result.items or result) or {}
      offer.take(asked, items[1])
      asked.hide = function()
        handler(nil, { items = {} }, ctx)
      end
      asked.again = function()
        ask(bufnr, self, params.context.triggerKind)
      end
      shown[bufnr] = asked
      handler(nil, { items = items }, ctx)
      if offered(bufnr) then
        require('foretype.next_edit').yield()
      end
    end, bufnr)
    asked.id = id
    live[bufnr] = sent and asked or nil
    return sent, id
  end
end

--- What is shown is a part of what is there now: ask again, unless a question is on its way.
local function grew(_, params)
  local bufnr = vim.api.nvim_get_current_buf() -- by name it is not found where it has none: a new one would be made
  local is_here = vim.uri_from_bufnr(bufnr) == params.textDocument.uri
  if is_here and not live[bufnr] and offer.fitted(shown[bufnr]) and leaving.typing() then
    shown[bufnr].again()
  end
end

--- The user asks for a suggestion here.
function M.suggest()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = client_of(bufnr)
  if client then
    quiet:stop() -- what typing would ask in a moment would take its place
    ask(bufnr, client, INVOKED)
  end
end

function M.fits()
  return offered(vim.api.nvim_get_current_buf()) ~= nil
end

--- Put a part of what is shown into the text; false if it does not fit any more.
function M.insert(part)
  local bufnr = vim.api.nvim_get_current_buf()
  local asked = offered(bufnr)
  if not asked then
    return false
  end
  cancel(bufnr) -- it is about the text before
  shown[bufnr] = nil
  asked.hide()
  offer.insert(asked, part)
  return true
end

--- Neovim goes on showing an item that the user has typed away from; take it off the screen.
local function hide_what_does_not_fit(bufnr)
  local asked = shown[bufnr]
  if asked and asked.item and vim.api.nvim_get_current_buf() == bufnr and not offer.fitted(asked) then
    vim.api.nvim_buf_clear_namespace(bufnr, marks, 0, -1)
  end
end

function M.setup(settings)
  local command = require('foretype.lsp').command(settings.cmd)
  if not command then
    return -- `:checkhealth foretype` says so
  end
  vim.lsp.config('foretype', {
    cmd = command,
    cmd_cwd = vim.loop.os_homedir(), -- `python -m` imports from there: never from a repository
    filetypes = settings.filetypes,
    root_markers = settings.root_markers,
    -- Neovim tells of a key at once, so that the server can ask the model before it is asked itself.
    init_options = vim.tbl_extend('keep', settings.options, {
      debounceMs = 25,
      askEarly = true,
      suggestionGrew = true,
    }),
    flags = { debounce_text_changes = 0 },
    handlers = { ['foretype/suggestionGrew'] = grew },
    get_language_id = require('foretype').language_id,
    capabilities = require('foretype.chat').capabilities(),
    on_init = watch,
  })
  local group = vim.api.nvim_create_augroup('foretype', {})
  vim.api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedP' }, {
    group = group,
    callback = function(event)
      ask_soon(event.buf)
      vim.schedule(function()
        if vim.api.nvim_buf_is_valid(event.buf) then
          hide_what_does_not_fit(event.buf)
        end
      end)
    end,
  })
  local function stop(bufnr)
    quiet:stop()
    cancel(bufnr) -- nobody waits for it any more
    shown[bufnr], last[bufnr] = nil, nil
    abort(bufnr)
  end
  leaving.on(group, 'native', stop)
  require('foretype.renaming').on(group, stop)
  vim.api.nvim_create_autocmd({ 'LspDetach', 'BufWipeout' }, {
    group = group,
    callback = function(event)
      shown[event.buf], last[event.buf], live[event.buf], handlers[event.buf] = nil, nil, nil, nil
    end,
  })
  vim.lsp.enable('foretype')
  vim.lsp.inline_completion.enable()
end

return M
