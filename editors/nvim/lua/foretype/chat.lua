--- Commands that ask the gateway's larger models: :ForetypeExplainCode, :ForetypeDocumentCode, :ForetypeCompleteFunction.
local M = {}

local COMMANDS = {
  ForetypeExplainCode = { 'foretype.chat.explain', 'Explain what is selected, or the function around the cursor' },
  ForetypeDocumentCode = { 'foretype.chat.document', 'Document the function or class around the cursor' },
  ForetypeCompleteFunction = { 'foretype.chat.completeFunction', 'Complete the function around the cursor' },
}

local function client_of(bufnr)
  local clients = (vim.lsp.get_clients or vim.lsp.get_active_clients)({ name = 'foretype' })
  for _, client in ipairs(clients) do -- 0.7 takes no filter
    if client.name == 'foretype' and vim.lsp.buf_is_attached(bufnr, client.id) then
      return client
    end
  end
end

local function say(text)
  vim.notify('Foretype: ' .. text, vim.log.levels.WARN)
end

local function show(text)
  vim.lsp.util.open_floating_preview(vim.split(text, '\n', { plain = true }), 'markdown', { focus_id = 'foretype-chat' })
end

--- What edits need: Neovim heeds the versions of edits in 0.7 and later, and says so in none.
function M.capabilities()
  local capabilities = vim.lsp.protocol.make_client_capabilities()
  capabilities.workspace.workspaceEdit.documentChanges = true
  return capabilities
end

--- @param command string of the server
--- @param first integer? first line of what is selected, counted from 1; without it the cursor counts
--- @param last integer?
function M.run(command, first, last)
  local bufnr = vim.api.nvim_get_current_buf()
  local client = client_of(bufnr)
  if not client then
    return say('no server for this buffer; see :checkhealth foretype')
  end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local range = { start = { line = row, character = 0 }, ['end'] = { line = row, character = 0 } }
  if first then
    range = { start = { line = first - 1, character = 0 }, ['end'] = { line = last, character = 0 } }
  end
  local target = { textDocument = { uri = vim.uri_from_bufnr(bufnr) }, range = range }
  local function answered(err, result)
    if err then
      if err.code ~= -32800 then -- cancelled
        say(err.message)
      end
    elseif result and result.kind == 'explain' then
      show(result.text)
    elseif result and not result.applied then
      say('nothing was changed: ' .. (result.reason or ''))
    end
  end
  local params = { command = command, arguments = { target } }
  if vim.fn.has('nvim-0.11') == 1 then
    client:request('workspace/executeCommand', params, answered, bufnr)
  else
    client.request('workspace/executeCommand', params, answered, bufnr)
  end
end

function M.setup()
  for name, told in pairs(COMMANDS) do
    vim.api.nvim_create_user_command(name, function(given)
      local selected = given.range > 0
      M.run(told[1], selected and given.line1 or nil, selected and given.line2 or nil)
    end, { range = true, desc = told[2] })
  end
end

return M
